/* Lanes of a program that takes turns: what each has got, and what of it is done. Shared by turn.c, lanes.c and
 * pieces.c, and by nobody else; all of it with the lock held. */
#ifndef HEADWAY_LANES_H
#define HEADWAY_LANES_H

#include "costs.h"
#include "gate.h"
#include "turn.h"
#include <pthread.h>
#include <stddef.h>
#include <string.h>

/* Batches of one lane that are in flight: a program is to be as far ahead of the GPU as its driver lets it, or the GPU
 * waits when the program is kept from its work for a moment. NVIDIA's lets it be ahead by about a thousand groups. */
#define BATCHES 512
/* A mark that takes longer may never come. */
#define BROKEN_NS 5000000u

struct batch {
    uint32_t seq, works;
    uint64_t issued_ns;
    bool doubtful; /* it may have begun long before it was issued */
    bool gated;    /* it waits on the GPU until the gate is open: a piece */
    bool unknown;  /* a piece of work that was not seen often enough */
    bool starved;  /* the GPU had nothing to do before it: it may have waited for its work */
    hw_u32 *word; /* the mark; its page stays mapped whatever becomes of the daemon */
    void *event;             /* or this in its place */
    void *begun, *ended;     /* events that tell what a piece took, for some of them */
    struct hw_sum sum;       /* what it is predicted to cost; its parts are last, and mostly there are none */
};

static inline void hw_batch_copy(struct batch *to, const struct batch *from) {
    memcpy(to, from, offsetof(struct batch, sum.part) + from->sum.parts * sizeof *from->sum.part);
}

static inline void hw_batch_clear(struct batch *b) { memset(b, 0, offsetof(struct batch, sum.part)); }

struct lane {
    void *key;
    const struct hw_lane_api *api;
    bool dirty; /* work went since the program last waited for it */
    bool loose; /* some of it stands before no mark and in no piece */
    bool gone;  /* the stream is no more, but what it had in flight goes on */
    uint32_t slot, first, count;
    uint32_t unmeasured; /* pieces since one was measured */
    hw_int passing; /* threads whose work has passed and is on its way to the stream */
    /* Of the open piece, at a time: what the GPU had yet to do, and what went since; whether it had begun. */
    uint64_t left_ns, added_ns, looked_ns;
    bool runs;
    struct batch open;
    struct batch *ring; /* of so many batches; last, for it stays when the rest is forgotten */
};

#define MEASURABLE 256

/* What is known of the program's work on one GPU. */
struct hw_turns {
    HW_SHARED(struct hw_channel *) made; /* the channel, once there is one */
    bool early;     /* the turn began with the asking for it */
    uint64_t flight_ns, finished_ns, turn_ns;
    uint64_t ended; /* batches done so far */
    bool asking;    /* a thread waits for a turn */
    uint32_t every; /* of so many pieces one is measured */
    uint32_t used;  /* of the lanes; looking at all of them would be slow */
    struct lane *joined; /* whose piece others may join, */
    uint32_t loan;       /* under which number, and for how much there was room, in ns: 0 if there is no loan */
    uint32_t lent;
    /* turn.c */
    uint64_t asked_ns; /* when it was last asked again */
    uint64_t end_marked; /* groups that had passed when the last mark of an end was set */
    /* lanes.c */
    struct lane *last_found;
    hw_u64 looked_ns;
    uint64_t stuck_at; /* how much was done when nothing more got done */
    bool stuck;
    struct {
        uint64_t ns;
        uint32_t lease;
        bool fed;
    } booked; /* last, and how things were then */
    bool late; /* the last finish was seen late */
    struct batch found[2 * HW_LANES]; /* batches found done together, waiting to be booked */
    uint32_t found_count;
    struct {
        const struct lane *lane;
        struct batch batch;
    } measurable[MEASURABLE]; /* pieces that the watchdog found done: it must not ask the driver what they took */
    uint32_t measurables;
    /* pieces.c */
    void *piece_of; /* the lane that got the last piece */
    /* jobs.c */
    struct {
        hw_u32 works;       /* since its last pause; read without the lock by who waited */
        uint64_t paused_ns; /* when that began; 0: there was none */
        uint64_t passed;    /* groups before this job */
        bool open;          /* the program says itself when its job is over, */
        uint64_t said_ns, deadline_ns; /* and said when it began */
    } job;
    struct lane lanes[HW_LANES];
};
/* Of each GPU, by the number that this thread's work has; those beyond the first once they are used. */
extern HW_SHARED(struct hw_turns *) hw_all[HW_DEVICES];
#define hw (*hw_load(&hw_all[hw_here.device]))

/* The channel of all lanes, NULL before the first work; and its pages, which there must be. */
static inline struct hw_channel *hw_channel(void) { return hw_load_acquire(&hw.made); }
static inline const struct hw_daemon_page *hw_daemon(void) { return hw_daemon_of(hw_channel()); }
static inline struct hw_client_page *hw_page(void) { return hw_page_of(hw_channel()); }

/* ---- lanes.c ---- */

struct lane *hw_lane_of(const struct hw_lane_api *api, void *key);
/* A mark behind what the lane has got so far; behind what all have. */
void hw_lane_mark(struct lane *lane);
void hw_lanes_mark(void);
void hw_lanes_show(void);
void hw_lane_send_off(struct lane *lane);
/* Looks what is done. */
void hw_lanes_reap(uint64_t now);
/* The same for pieces alone, without asking the driver anything. */
void hw_lanes_reap_pieces(uint64_t now);
/* When it was last looked; no lock is needed. */
uint64_t hw_lanes_looked(void);
void hw_lanes_measure(void);
void hw_lane_is_done(struct lane *lane, uint64_t now);
void hw_lanes_book(uint64_t now, bool exact);
bool hw_lanes_in_flight(void);
/* Work of some thread has passed and may have yet to get to the stream. */
bool hw_lane_is_sent_to(const struct lane *lane);
bool hw_lane_has_pieces(const struct lane *lane);
void hw_lanes_look_for_broken(uint64_t now);
/* In a forked child there are none. */
void hw_lanes_forget(void);
void hw_turn_nap(long ns);
void hw_turn_breathe(uint64_t since, uint64_t now);
bool hw_turn_is_stuck(uint64_t *since, uint64_t *before, uint64_t now);

static inline bool hw_is_written(const struct batch *b) { return hw_has_reached(b->word, b->seq); }

/* Of a piece: where the GPU says that it has begun, by where the GPU says that it is done. */
static inline hw_u32 *hw_opened_of(hw_u32 *closed) {
    const size_t apart = offsetof(struct hw_client_page, closed) - offsetof(struct hw_client_page, opened);
    return closed - apart / sizeof *closed;
}

static inline bool hw_is_begun(const struct batch *b) { return hw_has_reached(hw_opened_of(b->word), b->seq); }

/* With the lock nobody joins a piece, and what has joined is part of it. */
void hw_lock(void);
bool hw_try_lock(void);
void hw_unlock(void);
/* In a forked child. */
void hw_lock_anew(void);

/* ---- pieces.c ---- */

/* HW_FREE: it cannot go that way. */
enum hw_pass hw_piece_pass(const struct hw_lane_api *api, void *lane, uint64_t signature);
void hw_piece_end(struct lane *lane);
/* The program waits for it: that tells its end as well. */
void hw_piece_end_before_wait(struct lane *lane);

/* ---- turn.c ---- */

void hw_turn_drain(void);
void hw_turn_ask_again(void);
void hw_turn_say_passed(void);

static inline bool hw_turn_leased(void) {
    const struct hw_daemon_page *daemon = hw_daemon();
    return daemon && hw_load_acquire(&daemon->lease);
}

#endif
