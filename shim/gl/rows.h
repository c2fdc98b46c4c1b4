/* What a group will do, as numbers: what predictions are made of (libETP, section IV). */
#ifndef HEADWAY_ROWS_H
#define HEADWAY_ROWS_H

#include "protocol.h"
#include <stdbool.h>

/* Of a draw, in a row's `state`. */
enum hw_state {
    HW_BLENDS = 1,
    HW_TESTS_DEPTH = 2,
    HW_TESTS_STENCIL = 4,
    HW_CULLS = 8,
    HW_INSTANCED = 16,
    HW_LINES = 32,     /* or points: a bounding box says little */
    HW_UNPROJECTED = 64, /* the box or the matrix is not known: all that may be drawn on counts */
    HW_OFFSCREEN = 128,
};

/* A group in the making. */
struct hw_features {
    uint32_t rows, unfollowed; /* of enum hw_unfollowed */
    uint32_t last; /* the row that was added to last: draws come in series */
    bool unknown;  /* no coefficients for a part of the group */
    uint64_t cost; /* the running dot product with the daemon's coefficients, in 1/1024 ns */
    struct {
        uint64_t kind, mesh, commands, vertices, fragments;
        uint64_t each, vertex, fragment; /* coefficients, in 1/1024 ns */
    } row[HW_ROWS];
};

void hw_features_begin(struct hw_features *features, const struct hw_daemon_page *daemon);
/* Adds one command; `kind` names a clear's mask, a method, or a program with its state. */
void hw_features_add(struct hw_features *features, const struct hw_daemon_page *daemon, uint64_t kind, uint64_t mesh,
                     uint64_t vertices, uint64_t fragments);
/* What the group costs so far; false: nobody knows. */
bool hw_features_cost(const struct hw_features *features, uint64_t *cost_ns);
/* For the daemon, before the group is announced. */
void hw_features_publish(const struct hw_features *features, struct hw_client_page *page);

/* Kinds: small numbers for clears (of the mask's seven values, and 8 more where only a part is cleared: some devices draw
 * that) and, from 256 on, other methods; a draw's is its program's hash with the lowest byte replaced by the state. */
static inline uint64_t hw_kind_of_clear(uint32_t mask, bool part) { return (mask & 7) | (part ? 8 : 0); }
static inline uint64_t hw_kind_of_method(uint32_t method) { return 256 + (uint64_t)method; }
static inline uint64_t hw_kind_of_draw(uint64_t program, uint32_t state) {
    return ((program | 1ull << 63) & ~255ull) | (state & 255);
}

#endif
