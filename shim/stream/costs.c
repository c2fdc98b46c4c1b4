#include "costs.h"
#include "follow.h"

/* Two kinds of work in one place would forget each other for ever, and a program has hundreds of kinds. */
#define SETS 512
#define WAYS 8

static struct hw_cost table[SETS][WAYS];
struct hw_known hw_known __attribute__((aligned(64)));

struct hw_cost *hw_cost_find(uint64_t signature) {
    static uint32_t next;
    struct hw_cost *set = table[hw_cost_hash(signature) % SETS]; /* all of its bits count */
    for (int i = 0; i < WAYS; i++)
        if (set[i].signature == signature) return &set[i];
    struct hw_cost *c = &set[next++ % WAYS];
    for (int i = 0; i < WAYS; i++)
        if (!set[i].signature) c = &set[i];
    *c = (struct hw_cost){.signature = signature};
    return c;
}

struct hw_cost *hw_cost_of_work(uint64_t signature) {
    struct hw_cost *c = hw_cost_find(signature);
#ifdef HW_PREDICT
    c->launch = hw_launching;
#endif
    return c;
}

void hw_cost_publish(struct hw_cost *c) {
    static uint32_t last;
    uint64_t ns = c->seen < HW_KNOWN || c->ns > UINT32_MAX ? 0 : c->ns;
    uint32_t hash = hw_cost_hash(c->signature), place = hash % HW_COST_PLACES;
    if (hw_cost_at(c->at) >> 32 != hash) c->at = last = last % (HW_KNOWN_COSTS - 1) + 1;
    hw_store(&hw_known.costs[c->at], (uint64_t)hash << 32 | ns);
    uint32_t first = hw_load(&hw_known.places[place]), second = hw_load(&hw_known.places[place ^ 1]);
    if (first == c->at || second == c->at) return;
    if (first && !second) place ^= 1;
    hw_store(&hw_known.places[place], (uint16_t)c->at);
}

uint64_t hw_cost_of(const struct hw_cost *cost, uint64_t unknown_ns) {
    return cost->seen && cost->ns ? cost->ns : unknown_ns;
}

void hw_cost_add(struct hw_sum *sum, struct hw_cost *cost, uint64_t ns) {
    uint32_t i = 0;
    while (i < sum->parts && sum->part[i].of != cost) i++;
    if (i < HW_PARTS) {
        if (i == sum->parts) sum->part[sum->parts++] = (__typeof__(sum->part[0])){.of = cost};
        sum->part[i].ns += ns;
        sum->part[i].works++;
    }
    sum->ns += ns;
}

void hw_cost_learn(const struct hw_sum *sum, struct hw_sight seen, bool doubtful) {
    for (uint32_t i = 0; i < sum->parts; i++) {
        struct hw_cost *c = sum->part[i].of;
        double part = sum->parts == 1 ? 1 : (double)sum->part[i].ns / (double)sum->ns;
        uint64_t ns = (uint64_t)((double)seen.took_ns * part / sum->part[i].works);
        if (doubtful && ns < hw_cost_of(c, UINT64_MAX)) continue;
        if (c->ns && ns < c->ns && seen.or_more) continue;
        if (!(c->ns && ns >= c->ns && seen.or_less)) /* else it is no news, but it was seen */
            c->ns = hw_follow(c->seen ? c->ns : 0, ns);
        if (c->seen < HW_KNOWN) c->seen++;
        hw_cost_publish(c);
    }
}
