/* Units of a place on a GPU (`headway run --gpu auto --units`): each kernel and each copy owns the unit that it needs from
 * before it is launched until it is done. The daemon is the lock server; the gates of turns are open meanwhile. */
#ifndef HEADWAY_UNITS_H
#define HEADWAY_UNITS_H

#include "atomics.h"
#include <stdbool.h>
#include <stddef.h>

/* Whether this program passes units. */
extern hw_int hw_units __attribute__((visibility("hidden")));

/* Own the unit for work of this kind ('h': to the device, 'd': from it, others: the execution engine). Work of other
 * threads comes after. True if it must be given back; false: this thread owns one already, or units are passed no more. */
bool hw_unit_take(char kind);
/* The work is done, or `late`: nobody knows when it will be. Then units are passed no more. */
void hw_unit_give(bool late);
/* In how many bytes at a time copies go. */
size_t hw_unit_chunk(void);

#endif
