/* The gate: where a group waits for its turn. Mechanism only; every decision is the daemon's. */
#ifndef HEADWAY_GATE_H
#define HEADWAY_GATE_H

#include "protocol.h"
#include <stdbool.h>

#define HW_MATRIX 32

/* A channel's group in the making, and its connection. One thread at a time uses a channel. */
struct hw_channel {
    void *context; /* the GL context it belongs to */
    struct hw_channel *next;
    int fd; /* -1: not connected */
    const volatile struct hw_daemon_page *daemon;
    volatile struct hw_client_page *page;
    uint64_t retry_ns; /* do not try to connect before */
    uint32_t seq;
    bool leased;  /* the group that is going now goes under a lease */
    bool granted; /* it was granted by message */
    /* the group in the making */
    uint64_t signature, units, works, submit_ns, finish_ns;
    uint32_t methods;
    struct {
        uint32_t method, count;
        uint64_t size;
    } matrix[HW_MATRIX];
    /* learned cost of each class of method per unit, in 1/1024 ns */
    uint64_t rate[4];
    uint64_t class_units[4];
};

uint64_t hw_now(void);
void hw_gate_init(void);
bool hw_gate_enabled(void);
struct hw_channel *hw_channel_for(void *context);
void hw_channel_end(void *context);

/* The program shows a frame. */
void hw_gate_frame(struct hw_channel *channel);
/* Waits until the channel's group may go. */
void hw_gate_enter(struct hw_channel *channel);
/* The group is on its way; true if its completion must be waited for now. */
bool hw_gate_must_wait(const struct hw_channel *channel);
/* The group is done (or, under a lease, submitted). */
void hw_gate_leave(struct hw_channel *channel, bool frame, bool done);

#endif
