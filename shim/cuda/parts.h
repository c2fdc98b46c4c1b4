/* Large copies and sets in parts, while somebody more important waits: no part is predicted to take longer than the
 * window, so nobody waits longer for a copy engine than for a kernel. */
#ifndef HEADWAY_PARTS_H
#define HEADWAY_PARTS_H

#include <stddef.h>
#include <stdint.h>

/* In how many bytes at a time `size` bytes are to go; 0: all at once. `kind` is that of the work's signature; `to` and
 * `from` are the addresses that the work is between, 0 for what is no address of the driver's. */
size_t hw_part_of(char kind, size_t size, uint64_t to, uint64_t from);

#endif
