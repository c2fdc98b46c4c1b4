/* Work that waits on the GPU for its turn must not wait for a daemon that is dead. */
#ifndef HEADWAY_WATCHDOG_H
#define HEADWAY_WATCHDOG_H

#include "gate.h"

/* While pieces are on the GPU it calls `keep_books` every now and then. False: there is none, so nothing may wait on
 * the GPU. */
bool hw_watchdog_start(struct hw_channel *channel, bool (*keep_books)(void));
/* In a forked child, where no threads are. */
void hw_watchdog_gone(void);

#endif
