/* A channel's connection with the daemon. */
#ifndef HEADWAY_CONNECTION_H
#define HEADWAY_CONNECTION_H

#include "gate.h"

/* Whether there is a daemon to look for: the environment says where. */
bool hw_connection_init(void);
/* Connected, now if it was not before; false: there is no daemon, or it was looked for just now. */
bool hw_connected(struct hw_channel *channel);
/* The connection is over. */
void hw_forget(struct hw_channel *channel);
/* Its pages are no longer mapped, or another process's. */
void hw_forget_pages(struct hw_channel *channel);
/* Whether its descriptor is still the socket that it was. */
bool hw_is_ours(const struct hw_channel *channel);
/* False: the connection is over. */
bool hw_say(struct hw_channel *channel, const struct hw_message *message);
bool hw_wait_readable(int fd, int timeout_ms);
/* Whether who listens is of this user, or root. */
bool hw_is_trusted(int fd);

#endif
