/* What work costs: learned per kind of work, from what batches of it took. */
#ifndef HEADWAY_COSTS_H
#define HEADWAY_COSTS_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of work that one batch is learned from. */
#define HW_PARTS 8
/* Work that was seen less often is of an unknown kind: it is taken for as long as a whole window. */
#define HW_KNOWN 3

struct hw_cost { /* of one kind of work */
    uint64_t signature, ns;
    uint32_t seen;
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
/* What known work costs, in ns, found in one cache line; 0: it is not there. Each is 32 bits of a hash and 32 of ns. */
#define HW_KNOWN_COSTS 8192
extern uint64_t hw_known_costs[HW_KNOWN_COSTS] __attribute__((visibility("hidden")));
void hw_cost_publish(const struct hw_cost *cost);

static inline uint64_t hw_cost_hash(uint64_t signature) { return signature * 0x9e3779b97f4a7c15ull; }

static inline uint32_t hw_cost_known(uint64_t signature) {
    uint64_t hash = hw_cost_hash(signature);
    uint64_t found = __atomic_load_n(&hw_known_costs[(hash >> 32) % HW_KNOWN_COSTS], __ATOMIC_RELAXED);
    return (found ^ hash << 32) >> 32 ? 0 : (uint32_t)found;
}

uint64_t hw_cost_of(const struct hw_cost *cost, uint64_t unknown_ns);
void hw_cost_add(struct hw_sum *sum, struct hw_cost *cost, uint64_t ns);
/* Less than what is known is not believed of `doubtful` batches. */
void hw_cost_learn(const struct hw_sum *sum, struct hw_sight seen, bool doubtful);

#endif
