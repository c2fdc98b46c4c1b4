#define _GNU_SOURCE
#include "lanes.h"
#include "own.h"
#include <sys/mman.h>
#include <time.h>

/* Two looks at the marks so close that a mark seen by the second was written just then. */
#define CLOSE_NS 4000u
/* A drain that takes longer than this is waited for asleep. */
#define SPIN_NS 2000000u
/* Work may wait for the program itself, for an event that it has yet to set. When nothing got done for
 * so long, or for four times what was predicted, the gate waits no longer: nobody hangs at it. */
#define STUCK_NS 100000000ull
#define STUCK_AT_MOST_NS 1000000000ull
/* The same where the program is known to hold work back, or was found out to. */
#define HELD_NS 1000000ull
/* Events cost about as much as a gate does: one of so many pieces is measured as long as predictions are good. */
#define SELDOM 64
#define NEVER_MIND_NS 5000u

static struct hw_turns first = {.every = 1};
__typeof__(hw_all[0]) hw_all[HW_DEVICES] = {{&first}};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one for all GPUs: what work costs is known to all */

/* What others joined is part of the piece from now on, and nobody joins it any more. */
static void end_loan(void) {
    uint64_t room = hw_exchange_full(&hw_fast.room, hw_room_of(hw.loan, 0));
    uint64_t joined = hw.lent - hw_room_ns(room);
    hw.lent = 0;
    hw_store(&hw_fast.joined, NULL);
    hw.joined->open.sum.ns += joined;
    hw.joined->open.works += joined > 0;
    if (hw_load(&hw_fast.opened)) { /* as far as is known, nothing of it was done */
        hw.joined->added_ns += joined;
        return;
    }
    uint64_t until = hw_load(&hw_fast.until);
    int64_t left = hw_until_left(until, hw_ticks());
    if (!hw_until_is_of(until, hw.loan)) left = hw_load(&hw_fast.most); /* who joined an earlier one wrote it late */
    hw.joined->left_ns = left > 0 ? ((uint64_t)left << 16) / hw_load(&hw_fast.rate) : 0;
    hw.joined->looked_ns = hw_now();
}

void hw_lock(void) {
    pthread_mutex_lock(&lock);
    if (hw.lent) end_loan();
}

bool hw_try_lock(void) { return !pthread_mutex_trylock(&lock); }

void hw_lock_anew(void) { pthread_mutex_init(&lock, NULL); }

void hw_unlock(void) { pthread_mutex_unlock(&lock); }

/* Most programs use one lane or none: what each needs is allocated with its first work, or programs that lock all their
 * memory would have to lock that of all lanes. */
static bool has_ring(struct lane *lane) {
    if (lane->ring) return true;
    void *ring = mmap(NULL, BATCHES * sizeof *lane->ring, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring != MAP_FAILED) lane->ring = ring;
    return lane->ring;
}

struct lane *hw_lane_of(const struct hw_lane_api *api, void *key) {
    if (hw.last_found && hw.last_found->key == key) return hw.last_found;
    struct lane *unused = hw.used < HW_LANES ? &hw.lanes[hw.used] : NULL;
    for (uint32_t i = hw.used; i-- > 0;) {
        struct lane *lane = &hw.lanes[i];
        if (lane->key == key) return hw.last_found = lane;
        if (!lane->key || (!lane->dirty && !lane->count && !lane->open.works && !lane->open.gated)) unused = lane;
    }
    if (!unused || !has_ring(unused)) return NULL;
    unused->key = key;
    unused->api = api;
    unused->slot = (uint32_t)(unused - hw.lanes);
    if (hw.used <= unused->slot) hw.used = unused->slot + 1;
    unused->dirty = unused->loose = false;
    return unused;
}

static void bury(struct lane *lane) {
    lane->key = NULL;
    lane->dirty = lane->loose = lane->gone = false;
}

void hw_lanes_show(void) {
    bool open = false;
    for (uint32_t i = 0; i < hw.used; i++)
        open |= hw.lanes[i].loose || (hw.lanes[i].open.works && !hw.lanes[i].open.gated);
    hw_store_release(&hw_page()->unmarked, open); /* the marks before it are counted */
}

/* Pieces wait for the gate, so from when to when they ran is not known. But if it was open since the last booking, and
 * there was something to do at both, they ran all the time: since then. 0: it is not known. */
static uint64_t ran_since(uint64_t now) {
    uint32_t lease = hw_daemon() ? hw_load_acquire(&hw_daemon()->lease) : 0;
    bool fed = hw_lanes_in_flight(), all = fed && hw.booked.fed && lease && lease == hw.booked.lease;
    uint64_t since = all ? hw.booked.ns : 0;
    hw.booked.lease = lease;
    hw.booked.fed = fed;
    hw.booked.ns = now;
    return since;
}

/* They ran from max(submit, previous finish) to now, so lanes side by side are counted once. What each
 * of them took is not seen when they are found together: it is shared out as it was predicted. */
void hw_lanes_book(uint64_t now, bool exact) {
    uint64_t cost = 0, start = now;
    if (!hw.found_count) return;
    for (uint32_t i = 0; i < hw.found_count; i++) {
        cost += hw.found[i].sum.ns;
        if (hw.found[i].issued_ns < start) start = hw.found[i].issued_ns;
    }
    bool follows = start < hw.finished_ns;
    if (follows) start = hw.finished_ns;
    bool gated = hw.found[0].gated;
    uint64_t since = ran_since(now);
    /* Before that, as long as the gate may have been closed, no more than one of them was on the GPU. */
    if (gated && since && start + hw.found[0].sum.ns < since) start = since - hw.found[0].sum.ns;
    uint64_t took = now > start ? now - start : 0;
    for (uint32_t i = 0; i < hw.found_count; i++) {
        struct batch *b = &hw.found[i];
        uint64_t part = cost ? (uint64_t)((double)took * (double)b->sum.ns / (double)cost) : 0;
        if (b->gated) continue;
        if (b->works) hw_cost_learn(&b->sum, (struct hw_sight){part, follows && hw.late, !exact}, b->doubtful);
        hw.flight_ns -= b->sum.ns < hw.flight_ns ? b->sum.ns : hw.flight_ns;
    }
    uint64_t ran = exact || (gated && since) || took < cost ? took : cost;
    if (hw_page()) hw_count(&hw_page()->used_ns, ran);
    /* Pieces are looked at late: when the last one was probably done is where the next began. */
    uint64_t finish = gated ? start + ran : now;
    if (finish > hw.finished_ns) hw.finished_ns = finish;
    hw.late = !exact;
    hw.found_count = 0;
}

/* Whether a piece took something else than predicted: who waited for work may as well have taken longer. */
static bool is_surprising(const struct batch *b, uint64_t took) {
    uint64_t most = b->sum.ns / 8 + NEVER_MIND_NS;
    return took + most < b->sum.ns || (took > b->sum.ns + most && !b->starved);
}

/* What a piece took, where events tell it. */
static void measure(const struct lane *lane, struct batch *b) {
    uint64_t took = b->ended ? lane->api->between(b->begun, b->ended) : 0;
    if (took && !b->unknown) hw.every = is_surprising(b, took) ? 1 : hw.every < SELDOM ? 2 * hw.every : SELDOM;
    if (took) hw_cost_learn(&b->sum, (struct hw_sight){took, false, b->starved}, false);
    if (!b->starved) hw_launch_took(b, took);
    lane->api->forget_time(b->begun);
    if (b->ended) lane->api->forget_time(b->ended);
    b->begun = b->ended = NULL;
}

void hw_lanes_measure(void) {
    while (hw.measurables) {
        hw.measurables--;
        measure(hw.measurable[hw.measurables].lane, &hw.measurable[hw.measurables].batch);
    }
}

/* The first of those in flight is no more. */
static struct batch *take_off(struct lane *lane) {
    struct batch *b = &lane->ring[lane->first++ % BATCHES];
    lane->count--;
    return b;
}

static void find_done(const struct lane *lane, struct batch *b, uint64_t now, bool exact) {
    if (b->begun) measure(lane, b);
    hw_batch_copy(&hw.found[hw.found_count++], b);
    hw.ended++;
    if (hw.found_count == sizeof hw.found / sizeof *hw.found) hw_lanes_book(now, exact);
}

void hw_turn_written(hw_u32 *word, uint32_t value) {
    uint32_t old = hw_load(word);
    while ((int32_t)(old - value) < 0)
        if (hw_replace_release(word, &old, value)) return;
}

/* An event says it to us; the word says it to the daemon. */
static void forget_event(const struct lane *lane, struct batch *b) {
    hw_launch_done(b, hw_now());
    hw_turn_written(b->word, b->seq);
    lane->api->forget(b->event);
    b->event = NULL;
}

static bool is_done(const struct lane *lane, struct batch *b) {
    if (!b->event) return hw_is_written(b);
    if (!lane->api->event_done(b->event)) return false;
    forget_event(lane, b);
    return true;
}

/* Seen soon after it happened: within some microseconds, or a small part of what it took. */
static bool is_soon(const struct batch *b, uint64_t now) {
    uint64_t start = b->issued_ns > hw.finished_ns ? b->issued_ns : hw.finished_ns;
    uint64_t late = now - hw_lanes_looked();
    return late < CLOSE_NS || (start < now && late < (now - start) / 16);
}

void hw_lanes_reap(uint64_t now) {
    bool exact = true;
    for (uint32_t i = 0; i < hw.used; i++) {
        struct lane *lane = &hw.lanes[i];
        while (lane->count && is_done(lane, &lane->ring[lane->first % BATCHES])) {
            struct batch *b = take_off(lane);
            exact = exact && !b->gated && is_soon(b, now);
            find_done(lane, b, now, exact);
        }
        if (lane->gone && !lane->count) bury(lane);
    }
    hw_lanes_book(now, exact);
    hw_store(&hw.looked_ns, now);
}

uint64_t hw_lanes_looked(void) { return hw_load(&hw.looked_ns); }

void hw_lane_send_off(struct lane *lane) {
    hw_batch_copy(&lane->ring[(lane->first + lane->count++) % BATCHES], &lane->open);
    hw_batch_clear(&lane->open);
}

/* A mark behind what the lane has got so far. */
void hw_lane_mark(struct lane *lane) {
    struct batch *b = &lane->open;
    struct hw_client_page *page = hw_page();
    if (!page || lane->gone || lane->count == BATCHES || !lane->api->may_mark(lane->key)) return;
    if (b->gated || (!b->works && !lane->loose)) return;
    b->word = &page->done[lane->slot];
    b->seq = hw_load(&page->issued[lane->slot]) + 1;
    b->event = NULL;
    if (!b->works) b->issued_ns = hw.turn_ns;
    if (!lane->api->mark(lane->key, b->word, b->seq, &b->event)) return;
    hw_store(&page->issued[lane->slot], b->seq);
    lane->loose = false;
    hw_lane_send_off(lane);
}

void hw_lanes_mark(void) {
    for (uint32_t i = 0; i < hw.used; i++)
        if (hw.lanes[i].key) hw_lane_mark(&hw.lanes[i]);
    hw_store(&hw_fast.lane, NULL);
    hw_lanes_show();
}

bool hw_lanes_in_flight(void) {
    for (uint32_t i = 0; i < hw.used; i++)
        if (hw.lanes[i].count) return true;
    return false;
}

/* Whatever the GPU has written of it. If that was nothing it is broken, or only we think so: then what waits for the
 * gate must not do it for ever. */
static void say_done(const struct lane *lane, struct batch *b) {
    if (b->event) forget_event(lane, b);
    if (!b->gated) return;
    if (!hw_is_begun(b) && hw_page()) hw_store_full(&hw_page()->open, 1);
    hw_turn_written(b->word, b->seq);
    hw_turn_written(hw_opened_of(b->word), b->seq);
}

bool hw_lane_is_sent_to(const struct lane *lane) {
    return hw_load_acquire(&lane->passing) || hw_load_full(&hw_fast.joining);
}

/* Pieces that the GPU has not done for sure, or work that has yet to get there, though somebody waited for something. */
bool hw_lane_has_pieces(const struct lane *lane) {
    if (hw_lane_is_sent_to(lane)) return true;
    if (lane->open.gated && !hw_is_begun(&lane->open)) return true;
    for (uint32_t i = lane->count; i-- > 0;) {
        const struct batch *b = &lane->ring[(lane->first + i) % BATCHES];
        if (b->gated) return !hw_is_written(b); /* those before it are done when it is */
    }
    return false;
}

void hw_lane_is_done(struct lane *lane, uint64_t now) {
    while (lane->count) {
        struct batch *b = take_off(lane);
        say_done(lane, b);
        find_done(lane, b, now, false);
    }
    say_done(lane, &lane->open);
    if (lane->open.works || lane->open.begun) find_done(lane, &lane->open, now, false);
    hw_batch_clear(&lane->open);
    lane->dirty = lane->loose = false;
    if (lane->gone) bury(lane);
}

/* A program whose GPU work broke gets no more marks: ask the driver what became of it. */
void hw_lanes_look_for_broken(uint64_t now) {
    for (uint32_t i = 0; i < hw.used; i++) {
        struct lane *lane = &hw.lanes[i];
        if (!lane->key || !lane->count) continue;
        if (lane->gone || (lane->api->may_mark(lane->key) && lane->api->lane_done(lane->key)))
            hw_lane_is_done(lane, now);
    }
    hw_lanes_book(now, false);
}

static void cancelled(void *unused) {
    (void)unused;
    hw_here.inside = 0;
}

void hw_turn_nap(long ns) {
    hw_unlock();
    pthread_cleanup_push(cancelled, NULL);
    hw_own_wait();
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    hw_own_waited();
    pthread_cleanup_pop(0);
    hw_lock();
}

void hw_turn_breathe(uint64_t since, uint64_t now) {
    if (now - since > BROKEN_NS) hw_lanes_look_for_broken(now);
    if (now - since > SPIN_NS) {
        hw_turn_nap(50000);
        return;
    }
    hw_unlock();
    hw_lock();
}

/* Whether the program itself keeps some of its work from being done. */
static bool is_held_back(void) {
    for (uint32_t i = 0; i < hw.used; i++)
        if (hw.lanes[i].key && hw.lanes[i].api->held_back && hw.lanes[i].api->held_back()) return true;
    return false;
}

/* Nothing got done for too long, since `since` or since `before` batches were done. Once that was found
 * out it is hardly waited for again until something gets done. */
bool hw_turn_is_stuck(uint64_t *since, uint64_t *before, uint64_t now) {
    if (*before != hw.ended) {
        *before = hw.ended;
        *since = now;
    }
    bool again = hw.stuck && hw.stuck_at == hw.ended, held = is_held_back();
    uint64_t limit = 4 * hw.flight_ns < STUCK_AT_MOST_NS ? 4 * hw.flight_ns : STUCK_AT_MOST_NS;
    if (limit < STUCK_NS) limit = STUCK_NS;
    if (again || held) limit = again && held ? 0 : HELD_NS;
    bool over = now - *since >= limit;
    hw.stuck = again || over;
    hw.stuck_at = hw.ended;
    return over;
}

void hw_lanes_reap_pieces(uint64_t now) {
    for (uint32_t i = 0; i < hw.used; i++) {
        struct lane *lane = &hw.lanes[i];
        while (lane->count) {
            struct batch *b = &lane->ring[lane->first % BATCHES];
            if (!b->gated || !hw_is_written(b) || (b->begun && hw.measurables == MEASURABLE)) break;
            if (b->begun) {
                hw.measurable[hw.measurables].lane = lane;
                hw_batch_copy(&hw.measurable[hw.measurables++].batch, b);
                b->begun = b->ended = NULL;
            }
            find_done(lane, take_off(lane), now, false);
        }
    }
    hw_lanes_book(now, false);
}

void hw_lanes_forget(void) {
    for (uint32_t i = 0; i < hw.used; i++) memset(&hw.lanes[i], 0, offsetof(struct lane, ring));
    hw.used = hw.measurables = hw.found_count = 0;
    hw.flight_ns = 0;
    hw_store(&hw_fast.lane, NULL);
    hw_store(&hw_fast.joined, NULL);
    hw_store(&hw_fast.joining, 0);
    hw_store(&hw_fast.room, hw_room_of(hw.loan, 0));
    hw.lent = 0;
    hw.stuck = false;
}
