/* Turns: how work of CUDA and OpenCL programs passes the gate. A turn begins with the first work after
 * a rest and lasts until the program has waited for all of it, or until the daemon wants it to end.
 * In a turn, work passes with a few loads; no more predicted work than the window is in flight. */
#ifndef HEADWAY_TURN_H
#define HEADWAY_TURN_H

#include "costs.h"
#include "protocol.h"
#include <stdbool.h>

struct hw_channel;

/* Work between two of these ends and begins pieces: `closed` is told that the one before is done, unless it is
 * NULL; then the lane waits until `open` is not 0 and tells `opened` that the next one has begun, unless that is. */
struct hw_piece {
    hw_u32 *closed, *open, *opened;
    uint32_t before, number;
};

/* What an API does for the turns. A lane is an ordered way to the GPU: a stream, a queue. */
struct hw_lane_api {
    /* Makes the GPU write `value` to `word` (or an event in its place) once all before it is done. */
    bool (*mark)(void *lane, hw_u32 *word, uint32_t value, void **event);
    bool (*event_done)(void *event);
    void (*forget)(void *event);
    bool (*lane_done)(void *lane); /* or broken: nothing more is to be waited for */
    bool (*may_mark)(void *lane); /* not while its work is only being recorded */
    bool (*held_back)(void); /* the program holds work back that is to be started; may be NULL */
    bool (*is_meant)(void *lane); /* where all lanes are meant: whether this one is; NULL: each is */
    void (*identify)(struct hw_channel *); /* says which GPU this thread's work goes to; may be NULL */
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
    HW_OWNING,  /* it owns a unit (cuda/units.h) until it is done */
};

/* What work under a lease looks at on its way is in as few cache lines and pages as can be. A framework uses all of
 * them for itself between two launches: there, every line that is looked at costs more than all that is done with it. */
#define HW_NEAR(size) __attribute__((section("headway_near"), aligned(size)))

/* Room in a piece for the work of others: the number of the loan in the upper half, which never comes again soon, and
 * ns of predicted work in the lower. */
#define HW_ROOM_MOST UINT32_MAX
static inline uint64_t hw_room_of(uint32_t loan, uint64_t ns) { return (uint64_t)loan << 32 | (uint32_t)ns; }
static inline uint32_t hw_room_loan(uint64_t room) { return (uint32_t)(room >> 32); }
static inline uint32_t hw_room_ns(uint64_t room) { return (uint32_t)room; }

/* A time in ticks, with the loan that it belongs to in its lowest bits: a thread that joined an earlier one may write it
 * late. */
#define HW_LOAN_BITS 8
static inline uint64_t hw_until_of(uint32_t loan, uint64_t ticks) { return ticks << HW_LOAN_BITS | (uint8_t)loan; }
static inline bool hw_until_is_of(uint64_t until, uint32_t loan) { return (uint8_t)until == (uint8_t)loan; }
/* How far it is from `now`, in ticks: less than 0 if it is over. */
static inline int64_t hw_until_left(uint64_t until, uint64_t now) {
    return (int64_t)((until & ~(uint64_t)UINT8_MAX) - (now << HW_LOAN_BITS)) >> HW_LOAN_BITS;
}

struct hw_near {
    hw_pointer lane; /* its work may go while there is a lease; NULL: nobody's */
    HW_SHARED(const struct hw_daemon_page *) daemon; /* its pages stay, even a dead one's */
    hw_u32 unsaid;   /* groups that passed and are not counted in the page yet; not every one if threads race */
    hw_int recorded; /* streams whose work is only being recorded */
    hw_int joining;  /* threads whose work has joined a piece and is on its way to the stream */
    /* A loan: written with the lock, and before others know of it. */
    hw_u32 lease; /* while this is the lease, or there is none, */
    hw_pointer joined; /* others may join the piece of this lane, */
    hw_u64 room;  /* for so much predicted work, */
    hw_u64 until; /* while no more of it is in flight: when the GPU has done it, */
    hw_u32 most;  /* and how many ticks from now that may be */
    hw_u32 rate;  /* 65536ths of ticks in a ns */
    HW_SHARED(const hw_u32 *) opened; /* if that is not NULL: until this has reached */
    hw_u32 number;    /* this, which says that it has begun */
    hw_u32 next_cost; /* where the next one's is, probably */
    hw_int contexts;  /* of the first GPU: whether the program may have several (cuda/contexts.h) */
} __attribute__((aligned(128))); /* two lines that are fetched together */
/* GPUs of a program that are told apart: each has a connection, a gate and turns of its own. */
#define HW_DEVICES 8
extern struct hw_near hw_nears[HW_DEVICES] __attribute__((visibility("hidden")));
#define hw_fast (hw_nears[hw_here.device])
/* What this thread is at. If it ends there, cancelled in a call of the driver, that is put right. */
extern _Thread_local struct hw_here {
    uint32_t device; /* where its work goes, of HW_DEVICES */
    bool known;   /* its end will be heard of */
    bool joining; /* its work has joined a piece and is on its way */
    int inside;   /* in code of ours: a driver that calls back is not the program */
    int waiting;  /* calls in which it waits for the GPU */
    uint64_t called_ns; /* when its work passed */
    struct lane *on_its_way; /* where that goes, if it goes in a piece */
} hw_here __attribute__((visibility("hidden")));

/* Thousandths of the multiprocessors. */
#define HW_ALL_OF_THEM 1000

/* After so many the slow way looks whether the daemon lives. */
#define HW_UNSAID 256

/* Whether work passes with a few loads: then it has. */
static inline bool hw_turn_is_fast(void *lane) {
    if (hw_load_acquire(&hw_fast.lane) != lane || hw_load(&hw_fast.unsaid) >= HW_UNSAID || hw_load(&hw_fast.recorded))
        return false;
    const struct hw_daemon_page *daemon = hw_load(&hw_fast.daemon);
    if (hw_load(&daemon->window_ns) || !hw_load_acquire(&daemon->lease)) return false;
    hw_count(&hw_fast.unsaid, 1);
    return true;
}

/* Which share of the multiprocessors the program is to keep to, in thousandths; 0: none. */
static inline uint32_t hw_turn_told(void) {
    const struct hw_daemon_page *daemon = hw_load(&hw_fast.daemon);
    uint32_t permille = daemon ? hw_load(&daemon->share) : 0;
    return permille < HW_ALL_OF_THEM ? permille : 0;
}

static inline bool hw_has_reached(const hw_u32 *word, uint32_t value) {
    return (int32_t)(hw_load_acquire(word) - value) >= 0;
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

/* Whether what is in flight, and so much more, is no more than may be; `until` becomes when the GPU has done that. */
static inline bool hw_turn_has_room(uint32_t ns, uint32_t loan, uint64_t *until) {
    uint64_t ticks = (uint64_t)ns * hw_load_acquire(&hw_fast.rate) >> 16, now = hw_ticks();
    const hw_u32 *opened = hw_load_acquire(&hw_fast.opened);
    *until = hw_load_acquire(&hw_fast.until);
    if (!hw_until_is_of(*until, loan)) return false;
    int64_t left = hw_until_left(*until, now);
    if (left > 0) ticks += (uint64_t)left;
    *until = hw_until_of(loan, now + ticks);
    return opened ? !hw_has_reached(opened, hw_load_acquire(&hw_fast.number)) : ticks <= hw_load_acquire(&hw_fast.most);
}

/* Whether work of a known kind joins the piece that its lane is in: then it has, and hw_turn_joined is to be told when
 * it has gone. Nobody's lock is needed: whoever has it has ended the loan, and the room of another loan has another
 * number. So all that is read of the loan after its room, and before some of that is taken, belongs to it. */
static inline bool hw_turn_join(void *lane, uint64_t signature) {
    uint64_t room = hw_load_acquire(&hw_fast.room), until;
    if (!hw_room_ns(room) || hw_load_acquire(&hw_fast.joined) != lane || !hw_here.known) return false;
    if (hw_load(&hw_fast.unsaid) >= HW_UNSAID || hw_load(&hw_fast.recorded)) return false;
    const struct hw_daemon_page *daemon = hw_load_acquire(&hw_fast.daemon);
    if (hw_load_acquire(&daemon->lease) != hw_load_acquire(&hw_fast.lease)) return false;
    uint32_t ns = hw_cost_known(signature, &hw_fast.next_cost), loan = hw_room_loan(room);
    if (!ns || !hw_turn_has_room(ns, loan, &until)) return false;
    hw_add_full(&hw_fast.joining, 1);
    while (hw_room_loan(room) == loan && hw_room_ns(room) >= ns)
        if (hw_replace_full(&hw_fast.room, &room, room - ns)) {
            hw_store(&hw_fast.until, until);
            hw_count(&hw_fast.unsaid, 1);
            return hw_here.joining = true;
        }
    hw_add_release(&hw_fast.joining, -1);
    return false;
}

static inline void hw_turn_joined(void) {
    hw_here.joining = false;
    hw_add_release(&hw_fast.joining, -1);
}

/* This thread's work, and what it asks, is about this GPU from now on. */
void hw_turn_device(uint32_t device);
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
/* It has looked whether its work is done, and that was not so. */
void hw_turn_polls(void);
/* The program has waited for this lane; NULL with `all`: for every one. */
void hw_turn_synced(void *lane, bool all);
/* The program has waited for something: look whether that was all. */
void hw_turn_look(void);
/* Something failed, and with it perhaps everything: look whether anything is still to be waited for. */
void hw_turn_failed(void);
/* The lane is about to go, or all of them are. */
void hw_turn_end_lane(void *lane, bool all);
bool hw_turn_inside(void);
/* How much predicted work of the program others may have to wait for, in ns; 0: as much as there is. */
uint64_t hw_turn_window(void);
/* The same as hw_turn_told while the daemon lives, as far as is known. */
uint32_t hw_turn_share(void);
/* Work went, and is confined to so many thousandths of the multiprocessors; or it has all of them. */
void hw_turn_confined(uint32_t permille);
void hw_turn_whole(void);
/* Why it is not confined: of enum hw_unconfined. */
void hw_turn_unconfined(uint32_t why);
/* In the GPU's place: this mark is reached. */
void hw_turn_written(hw_u32 *word, uint32_t value);

#define HW_SEED 0xcbf29ce484222325ull

static inline uint64_t hw_mix(uint64_t hash, uint64_t value) { /* FNV-1a over whole words */
    return (hash ^ value) * 0x100000001b3ull;
}

/* The signature of a copy. Sizes that differ by less than an eighth cost about the same. */
static inline uint64_t bytes(char way, uint64_t size) {
    hw_copy_is(way, size);
    int high = size ? 63 - __builtin_clzll(size) : 0;
    return hw_mix(hw_mix(HW_SEED, (uint64_t)way), high > 3 ? size >> (high - 3) << (high - 3) : size);
}

#endif
