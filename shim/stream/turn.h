/* Turns: how work of CUDA and OpenCL programs passes the gate. A turn begins with the first work after
 * a rest and lasts until the program has waited for all of it, or until the daemon wants it to end.
 * In a turn, work passes with a few loads; no more predicted work than the window is in flight. */
#ifndef HEADWAY_TURN_H
#define HEADWAY_TURN_H

#include "costs.h"
#include "protocol.h"
#include <stdbool.h>

/* Work between two of these ends and begins pieces: `closed` is told that the one before is done, unless it is
 * NULL; then the lane waits until `open` is not 0 and tells `opened` that the next one has begun, unless that is. */
struct hw_piece {
    volatile uint32_t *closed, *open, *opened;
    uint32_t before, number;
};

/* What an API does for the turns. A lane is an ordered way to the GPU: a stream, a queue. */
struct hw_lane_api {
    /* Makes the GPU write `value` to `word` (or an event in its place) once all before it is done. */
    bool (*mark)(void *lane, volatile uint32_t *word, uint32_t value, void **event);
    bool (*event_done)(void *event);
    void (*forget)(void *event);
    bool (*lane_done)(void *lane); /* or broken: nothing more is to be waited for */
    bool (*may_mark)(void *lane); /* not while its work is only being recorded */
    bool (*held_back)(void); /* the program holds work back that is to be started; may be NULL */
    /* Where the GPU itself can wait at the gate; else all of them NULL. */
    bool (*can_gate)(void);
    bool (*gate)(void *lane, const struct hw_piece *piece);
    bool (*joins)(void *lane); /* it waits for others without being told to */
    void (*time)(void *lane, void **event); /* NULL if it cannot be told */
    uint64_t (*between)(void *begun, void *ended); /* ns, 0 if nobody knows */
    void (*forget_time)(void *event);
};

enum hw_pass {
    HW_FREE,    /* nobody is asked */
    HW_FAST,    /* under a lease */
    HW_WATCHED, /* the same, with a window: it is to be told when it has gone */
    HW_GATED,   /* it waits on the GPU itself */
    HW_ENDING,  /* the same, and nothing is to go with it: it is to be told when it has gone */
};

/* What work under a lease looks at on its way is in as few cache lines and pages as can be. A framework uses all of
 * them for itself between two launches: there, every line that is looked at costs more than all that is done with it. */
#define HW_NEAR(size) __attribute__((section("headway_near"), aligned(size)))

extern struct hw_fast {
    void *lane; /* its work may go while there is a lease; NULL: nobody's */
    const volatile struct hw_daemon_page *daemon; /* its pages stay, even a dead one's */
    uint32_t unsaid; /* groups that passed and are not counted in the page yet */
    int recorded;    /* streams whose work is only being recorded */
    int joining;     /* threads whose work has joined a piece and is on its way to the stream */
    uint32_t lease;  /* while this is the lease, or there is none, */
    void *joined;    /* others may join the piece of this lane, */
    int64_t room;    /* for so much predicted work, in ns, */
    uint64_t until;  /* while no more of it is in flight: when the GPU has done it, in ticks, */
    uint32_t most;   /* and how many ticks from now that may be */
    uint32_t rate;   /* 65536ths of ticks in a ns */
    volatile uint32_t *opened; /* if that is not NULL: until this has reached */
    uint32_t number;           /* this, which says that it has begun */
    uint32_t next_cost;        /* where the next one's is, probably */
} hw_fast __attribute__((visibility("hidden")));
/* After so many the slow way looks whether the daemon lives. */
#define HW_UNSAID 256

/* Whether work passes with a few loads: then it has. */
static inline bool hw_turn_is_fast(void *lane) {
    if (__atomic_load_n(&hw_fast.lane, __ATOMIC_ACQUIRE) != lane || hw_fast.unsaid >= HW_UNSAID || hw_fast.recorded ||
        hw_fast.daemon->window_ns || !__atomic_load_n(&hw_fast.daemon->lease, __ATOMIC_ACQUIRE))
        return false;
    hw_fast.unsaid++;
    return true;
}

static inline bool hw_has_reached(volatile uint32_t *word, uint32_t value) {
    return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0;
}

/* A clock that costs no cache line. */
static inline uint64_t hw_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}

/* Whether work of a known kind joins the piece that its lane is in: then it has, and hw_turn_joined is to be told when
 * it has gone. Nobody's lock is needed: whoever has it has taken the room away. */
static inline bool hw_turn_join(void *lane, uint64_t signature) {
    if (__atomic_load_n(&hw_fast.joined, __ATOMIC_ACQUIRE) != lane || hw_fast.unsaid >= HW_UNSAID || hw_fast.recorded ||
        __atomic_load_n(&hw_fast.daemon->lease, __ATOMIC_ACQUIRE) != hw_fast.lease)
        return false;
    int64_t ns = hw_cost_known(signature, &hw_fast.next_cost), room;
    uint64_t ticks = (uint64_t)ns * hw_fast.rate >> 16, now = hw_ticks();
    uint64_t until = (int64_t)(hw_fast.until - now) > 0 ? hw_fast.until : now;
    volatile uint32_t *opened = hw_fast.opened;
    if (!ns || (opened ? hw_has_reached(opened, hw_fast.number) : until + ticks - now > hw_fast.most)) return false;
    __atomic_add_fetch(&hw_fast.joining, 1, __ATOMIC_SEQ_CST);
    room = __atomic_load_n(&hw_fast.room, __ATOMIC_RELAXED);
    while (room >= ns)
        if (__atomic_compare_exchange_n(&hw_fast.room, &room, room - ns, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
            hw_fast.until = until + ticks;
            hw_fast.unsaid++;
            return true;
        }
    __atomic_sub_fetch(&hw_fast.joining, 1, __ATOMIC_RELEASE);
    return false;
}

static inline void hw_turn_joined(void) { __atomic_sub_fetch(&hw_fast.joining, 1, __ATOMIC_RELEASE); }

/* Before work: waits until it may go. */
enum hw_pass hw_turn_pass(const struct hw_lane_api *api, void *lane, uint64_t signature);
/* After it, if it was gated, whether it went or not. */
void hw_turn_arrived(void);
/* After it, if it went as the gate said. */
void hw_turn_passed(const struct hw_lane_api *api, void *lane, uint64_t signature, enum hw_pass pass);
/* The program is about to wait for this lane; NULL with `all`: for every one. */
void hw_turn_waits(void *lane, bool all);
/* The program is about to make this lane wait for another. */
void hw_turn_joins(void *lane);
/* A thread begins (1) or ends (-1) to wait for the GPU. */
void hw_turn_waiting(int change);
/* The program has waited for this lane; NULL with `all`: for every one. */
void hw_turn_synced(void *lane, bool all);
/* The program has waited for something: look whether that was all. */
void hw_turn_look(void);
/* Something failed, and with it perhaps everything: look whether anything is still to be waited for. */
void hw_turn_failed(void);
/* The lane is about to go, or all of them are. */
void hw_turn_end_lane(void *lane, bool all);
bool hw_turn_inside(void);
/* In the GPU's place: this mark is reached. */
void hw_turn_written(volatile uint32_t *word, uint32_t value);

#define HW_SEED 0xcbf29ce484222325ull

static inline uint64_t hw_mix(uint64_t hash, uint64_t value) { /* FNV-1a over whole words */
    return (hash ^ value) * 0x100000001b3ull;
}

/* The signature of a copy. Sizes that differ by less than an eighth cost about the same. */
static inline uint64_t bytes(char way, uint64_t size) {
    int high = size ? 63 - __builtin_clzll(size) : 0;
    return hw_mix(hw_mix(HW_SEED, (uint64_t)way), high > 3 ? size >> (high - 3) << (high - 3) : size);
}

#endif
