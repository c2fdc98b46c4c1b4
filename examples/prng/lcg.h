/* A linear congruential generator, once for the GPU and once for the check: integers that wrap, so that both agree to
 * the bit. One read at the beginning and one write at the end make the kernel bound by computing (CudaMon, section 3.3). */
#ifndef LCG_H
#define LCG_H
#include <stdint.h>

#define LCG_A 1664525u
#define LCG_C 1013904223u

static inline uint32_t lcg_sequential(uint32_t seed, long iterations) {
    for (long i = 0; i < iterations; i++) seed = seed * LCG_A + LCG_C;
    return seed;
}

/* The same in log2(iterations) steps: i steps are one step with another factor and another term. */
static inline uint32_t lcg_jump(uint32_t seed, long iterations) {
    uint32_t factor = LCG_A, term = LCG_C, all_factor = 1, all_term = 0;
    for (; iterations; iterations >>= 1) {
        if (iterations & 1) {
            all_factor *= factor;
            all_term = all_term * factor + term;
        }
        term *= factor + 1;
        factor *= factor;
    }
    return seed * all_factor + all_term;
}

static inline uint32_t lcg_seed(long index) { return (uint32_t)index * 2654435761u + 12345u; }
#endif
