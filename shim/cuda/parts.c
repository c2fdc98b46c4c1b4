#define _GNU_SOURCE
#include "parts.h"
#include "costs.h"
#include "loader.h"
#include "turn.h"
#include "units.h"
#include <stdbool.h>

#define MIB ((size_t)1 << 20)
/* The driver's library, in which its functions are looked for. */
#define LIBRARY "libcuda.so.1"

/* Whether the bytes from here on are of one allocation. If not, the driver will refuse the work as a whole, and must
 * not have done a part of it before. */
enum range { WITHIN, BEYOND, UNKNOWN };

static enum range range_of(uint64_t address, size_t size) {
    static int (*range)(uint64_t *, size_t *, uint64_t);
    uint64_t base = 0;
    size_t whole = 0;
    if (!range) range = hw_find_in(LIBRARY, "cuMemGetAddressRange_v2");
    if (!range || range(&base, &whole, address)) return UNKNOWN;
    return address >= base && size <= whole && address - base <= whole - size ? WITHIN : BEYOND;
}

/* Memory of the host that the driver does not know may be anything; but one of two addresses is the GPU's. */
static bool is_sound(uint64_t to, uint64_t from, size_t size) {
    enum range there = to ? range_of(to, size) : UNKNOWN, here = from ? range_of(from, size) : UNKNOWN;
    return there != BEYOND && here != BEYOND && (there == WITHIN || here == WITHIN);
}

size_t hw_part_of(char kind, size_t size, uint64_t to, uint64_t from) {
    static hw_u32 next;
    uint64_t window = size > MIB ? hw_turn_window() : 0;
    size_t part = MIB;
    if (hw_unit_chunk()) return size > hw_unit_chunk() && is_sound(to, from, size) ? hw_unit_chunk() : 0;
    if (!window || !is_sound(to, from, size)) return 0;
    uint64_t ns = hw_cost_known(bytes(kind, MIB), &next);
    while (ns && part < size && ns * (2 * part / MIB) <= window) part *= 2;
    return part < size ? part : 0;
}
