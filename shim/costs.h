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
uint64_t hw_cost_of(const struct hw_cost *cost, uint64_t unknown_ns);
void hw_cost_add(struct hw_sum *sum, struct hw_cost *cost, uint64_t ns);
/* Less than what is known is not believed of `doubtful` batches. */
void hw_cost_learn(const struct hw_sum *sum, struct hw_sight seen, bool doubtful);

#endif
