/* Launches and copies as numbers, for cost models: what went to the GPU and what it took (`headway run --predict`). Without
 * HW_PREDICT nothing of this is there. */
#ifndef HEADWAY_LAUNCHES_H
#define HEADWAY_LAUNCHES_H

#include "atomics.h"
#include <stdbool.h>
#include <stdint.h>

/* What a piece of work is to do. */
struct hw_launch {
    uint64_t kernel; /* which kernel; of copies the way they go, a letter */
    uint64_t items;  /* threads of all blocks; of copies bytes */
    uint64_t buffers; /* bytes of the buffers behind the kernel's arguments, as far as they are known */
    uint32_t block;  /* threads of a block; 0: a copy */
    uint32_t shared; /* bytes of shared memory for each block, asked for at the launch */
};

#ifdef HW_PREDICT
/* What this thread is about to send. */
extern _Thread_local struct hw_launch hw_launching __attribute__((visibility("hidden")));
static inline void hw_launch_is(uint64_t kernel, uint64_t items, uint64_t buffers, uint64_t block, uint32_t shared) {
    if (!block) block = 1; /* the driver chooses */
    uint32_t in_block = block < UINT32_MAX ? (uint32_t)block : UINT32_MAX;
    hw_launching = (struct hw_launch){kernel, items, buffers, in_block, shared};
}
static inline void hw_copy_is(char way, uint64_t bytes) { hw_launching = (struct hw_launch){(uint64_t)way, bytes, 0, 0, 0}; }
struct batch;
struct hw_cost;
/* Whether a mark is to stand behind this work, so that what it took is seen. */
bool hw_launch_is_wanted(const struct hw_cost *cost);
/* A mark was reached just now. */
void hw_launch_reached(const hw_u32 *word, uint32_t value);
/* The batch is done: what it took is for the daemon, if it was of one kind of work and the end was seen. */
void hw_launch_done(const struct batch *b, uint64_t now);
/* The same, of a piece whose time the GPU told. */
void hw_launch_took(const struct batch *b, uint64_t took_ns);
#else
#define hw_launch_is_wanted(cost) false
#define hw_launch_reached(word, value) ((void)0)
#define hw_launch_done(b, now) ((void)0)
#define hw_launch_took(b, took_ns) ((void)0)
#define hw_launch_is(kernel, items, buffers, block, shared) ((void)0)
#define hw_copy_is(way, bytes) ((void)0)
#endif

#endif
