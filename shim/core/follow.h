/* What kinds of work are expected to cost after one more observation: `follow` of engine/cost_models/recent.py. */
#ifndef HEADWAY_FOLLOW_H
#define HEADWAY_FOLLOW_H

#include <stdint.h>

/* Half the way down, for the first of a kind pays for compiling and loading; an eighth of the way up, from at most eight
 * times the known cost, for the work may have met a busy machine. A known cost of 0 is an unknown one. */
static inline uint64_t hw_follow(uint64_t known, uint64_t seen) {
    if (!known) return seen ? seen : 1;
    if (seen < known) return known + seen < 2 ? 1 : (known + seen) / 2;
    return (known * 7 + (seen < 8 * known ? seen : 8 * known)) / 8;
}

#endif
