/* The gate: where a group waits for its turn. Mechanism only; every decision is the daemon's. */
#ifndef HEADWAY_GATE_H
#define HEADWAY_GATE_H

#include "protocol.h"
#include <stdbool.h>

struct hw_features;

#define HW_LISTS 64
#define HW_HELD 72

/* A channel's group in the making, and its connection. One thread at a time uses a channel. */
struct hw_channel {
    void *context; /* the GL context it belongs to */
    struct hw_channel *next;
    int users; /* threads it is current on; its context can be destroyed before it is let go */
    hw_int fd; /* -1: not connected */
    uint64_t socket; /* which socket that was: a program may close descriptors it does not know */
    HW_SHARED(const struct hw_daemon_page *) daemon;
    HW_SHARED(struct hw_client_page *) page;
    uint64_t retry_ns; /* do not try to connect before */
    uint32_t seq;
    bool leased;  /* the group that is going now goes under a lease */
    bool granted; /* it was granted by message */
    /* the group in the making */
    uint64_t signature, units, works, submit_ns, start_ns, finish_ns;
    uint32_t methods;
    struct {
        uint32_t method, count;
        uint64_t size;
    } matrix[HW_MATRIX];
    /* learned cost of each class of method per unit, in 1/1024 ns */
    uint64_t rate[4];
    uint64_t class_units[4];
    uint32_t learned;
    uint64_t sampled_ns;
    /* what is known of the context */
    bool known, fences;
    bool hasty; /* fences are said to be reached before the driver is done with them */
    bool scissored, packing, compiling, drawing;
    int viewport_width, viewport_height, scissor_width, scissor_height;
    uint32_t list, list_units[HW_LISTS];
    uint64_t frame_ns, frame_held_ns; /* when the frame's first group came, 0: none did; how long its groups waited */
    uint32_t frame_groups;
    uint64_t expected_ns; /* what the group that is leaving will take, if it was not waited for */
    /* what went under a lease and may still be on the GPU */
    void *pending;
    uint64_t pending_ns, unfenced_ns;
    void *held[HW_HELD]; /* fences that nobody waits for, if it is hasty */
    uint32_t holds;
    const struct hw_features *features; /* of the group in the making, where contexts are monitored */
    char model[HW_NAME], uuid[HW_UUID], pci[HW_PCI]; /* of the GPU it is for, as far as that is known */
    bool turns; /* a grant is a lease (turn.c); its pages stay, even a dead daemon's: the GPU and other threads use them */
};

/* Its pages, NULL while there are none. Of a channel that turns they may be older than its connection: they stay. */
static inline const struct hw_daemon_page *hw_daemon_of(const struct hw_channel *c) {
    return hw_load_acquire(&c->daemon);
}

static inline struct hw_client_page *hw_page_of(const struct hw_channel *c) { return hw_load_acquire(&c->page); }
/* Something went under a lease and may still be on the GPU. */
static inline bool hw_is_busy(const struct hw_channel *c) {
    return hw_page_of(c) && hw_load(&hw_page_of(c)->busy);
}

uint64_t hw_now(void);
void hw_gate_init(void);
/* The daemon is to know of these, now if it can be and else with the next frame or connection. */
void hw_gate_show_unknown(uint32_t count);
bool hw_gate_enabled(void);
/* The context's channel, made if there is none; the caller's thread uses it until it drops it. */
struct hw_channel *hw_channel_take(void *context);
void hw_channel_drop(struct hw_channel *channel);
/* The thread that used it ends, and nothing else may have told of that. If the context lives on, and is made current
 * by another thread, it is connected again. */
void hw_channel_abandon(struct hw_channel *channel);
/* The context is destroyed: its channel ends when no thread uses it. */
void hw_channel_end(void *context);

/* The program shows a frame. */
void hw_gate_frame(struct hw_channel *channel);
/* A lease was taken back while its work may still be on the GPU: settle it before asking again. */
bool hw_gate_owes(const struct hw_channel *channel);
/* Nothing of the channel is on the GPU any more. */
void hw_gate_settle(struct hw_channel *channel);
/* Waits until the channel's group may go. */
void hw_gate_enter(struct hw_channel *channel);
/* The group is on its way; true if its completion must be waited for now. */
bool hw_gate_must_wait(const struct hw_channel *channel);
/* What the daemon wants done around a swap: of enum hw_server. */
uint32_t hw_gate_server(const struct hw_channel *channel);
/* Something is asked of the window server, or was answered by it. Nobody waits for the daemon here. */
void hw_gate_tell_server(struct hw_channel *channel, bool enter);
/* The group is done (or, under a lease, submitted). */
void hw_gate_leave(struct hw_channel *channel, bool frame, bool done);

/* For turns, which are passed otherwise. */
/* Connected to a daemon that lives, now. */
bool hw_gate_reach(struct hw_channel *channel, uint64_t now_ns);
bool hw_gate_is_connected(const struct hw_channel *channel);
/* No sign of life from the daemon. */
bool hw_gate_is_silent(const struct hw_channel *channel);
/* Takes the lease if there is one: from here on the GPU counts as in use. */
bool hw_gate_take_lease(struct hw_channel *channel);
bool hw_gate_tell(struct hw_channel *channel, uint32_t type, bool last);
/* Asks, and waits for the answer; false: there is nobody to wait for. */
bool hw_gate_ask(struct hw_channel *channel);
/* Asks, and waits for nothing. */
bool hw_gate_announce(struct hw_channel *channel);
/* The turn is over, and the page says so: there was a job more, and nothing is busy. */
void hw_gate_rest(struct hw_channel *channel);

#endif
