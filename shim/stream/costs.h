/* What work costs: learned per kind of work, from what batches of it took. */
#ifndef HEADWAY_COSTS_H
#define HEADWAY_COSTS_H

#include "atomics.h"
#include "launches.h"

/* Kinds of work that one batch is learned from. */
#define HW_PARTS 8
/* Work that was seen less often is of an unknown kind: it is taken for as long as a whole window. */
#define HW_KNOWN 3

struct hw_cost { /* of one kind of work */
    uint64_t signature, ns;
    uint32_t seen;
    uint32_t at; /* where others find it, see below */
#ifdef HW_PREDICT
    struct hw_launch launch; /* as it was sent last */
#endif
};

/* A batch, as predicted. */
struct hw_sum {
    uint64_t ns;
    uint32_t parts;
    struct {
        struct hw_cost *of;
        uint64_t ns;
        uint32_t works;
    } part[HW_PARTS];
};

/* What was seen of a batch: it may have taken longer, or less, than `took_ns`. */
struct hw_sight {
    uint64_t took_ns;
    bool or_more, or_less;
};

struct hw_cost *hw_cost_find(uint64_t signature);
/* Of the work that this thread is about to send, or has sent just now. */
struct hw_cost *hw_cost_of_work(uint64_t signature);
/* What known work costs, in the order in which it became known: programs do the same things in the same order again, so
 * the next one is probably the next here, in a cache line that was fetched before. Each is 32 bits of a hash and 32 of ns;
 * the first is nobody's. Where each is stands in one of two places. */
#define HW_KNOWN_COSTS 4096
#define HW_COST_PLACES 8192
extern struct hw_known {
    hw_u64 costs[HW_KNOWN_COSTS];
    hw_u16 places[HW_COST_PLACES];
} hw_known __attribute__((visibility("hidden")));
void hw_cost_publish(struct hw_cost *cost);

static inline uint32_t hw_cost_hash(uint64_t signature) { return (uint32_t)(signature * 0x9e3779b97f4a7c15ull >> 32); }

static inline uint64_t hw_cost_at(uint32_t at) {
    return hw_load(&hw_known.costs[at % HW_KNOWN_COSTS]);
}

/* Where it is, if it is known: where it is thought to be, or where it stands that it is. */
static inline uint32_t hw_cost_place(uint32_t hash, uint32_t at) {
    uint32_t place = hash % HW_COST_PLACES;
    if (hw_cost_at(at) >> 32 == hash) return at;
    at = hw_load(&hw_known.places[place]);
    if (hw_cost_at(at) >> 32 == hash) return at;
    return hw_load(&hw_known.places[place ^ 1]);
}

/* In ns; 0: it is not known. `next` is where the next one probably is. */
static inline uint32_t hw_cost_known(uint64_t signature, hw_u32 *next) {
    uint32_t hash = hw_cost_hash(signature), at = hw_cost_place(hash, hw_load(next));
    uint64_t cost = hw_cost_at(at);
    if (cost >> 32 != hash) return 0;
    hw_store(next, at + 1);
    __builtin_prefetch(&hw_known.costs[(at + 8) % HW_KNOWN_COSTS]);
    return (uint32_t)cost;
}

uint64_t hw_cost_of(const struct hw_cost *cost, uint64_t unknown_ns);
void hw_cost_add(struct hw_sum *sum, struct hw_cost *cost, uint64_t ns);
/* Less than what is known is not believed of `doubtful` batches. */
void hw_cost_learn(const struct hw_sum *sum, struct hw_sight seen, bool doubtful);

#endif
