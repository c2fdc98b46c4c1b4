#define _GNU_SOURCE
#include "turn.h"
#include "costs.h"
#include "gate.h"
#include "watchdog.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

/* Batches of one lane that are in flight, and kinds of work that one batch is learned from. */
#define BATCHES 64
/* A window is marked in so many pieces, so that room in it is seen in time. */
#define PIECES 4
/* Two looks at the marks so close that a mark seen by the second was written just then. */
#define CLOSE_NS 4000u
/* A call that took longer was interrupted: when its work began is not known. */
#define CALL_NS 50000u
/* A drain that takes longer than this is waited for asleep. */
#define SPIN_NS 2000000u
/* A mark that takes longer may never come. */
#define BROKEN_NS 5000000u
/* Work may wait for the program itself, for an event that it has yet to set. When nothing got done for
 * so long, or for four times what was predicted, the gate waits no longer: nobody hangs at it. */
#define STUCK_NS 100000000ull
#define STUCK_AT_MOST_NS 1000000000ull
/* The same where the program is known to hold work back, or was found out to. */
#define HELD_NS 1000000ull
/* How long a piece is when nobody says how much may be in flight, and how many are measured. */
#define WIDE_NS 5000000u
#define SAMPLED 16
#define MEASURABLE (4 * BATCHES)
#define ASK_AGAIN_NS 1000000u
#define ALL ((void *)-1)

struct batch {
    uint32_t seq, works;
    uint64_t issued_ns;
    struct hw_sum sum; /* what it is predicted to cost */
    bool doubtful; /* it may have begun long before it was issued */
    bool gated;    /* it waits on the GPU until the gate is open: a piece */
    bool unknown;  /* a piece of work that was not seen often enough */
    bool starved;  /* the GPU had nothing to do before it: it may have waited for its work */
    volatile uint32_t *word; /* the mark; its page stays mapped whatever becomes of the daemon */
    void *event;             /* or this in its place */
    void *begun, *ended;     /* events that tell what a piece took, for some of them */
};

struct lane {
    void *key;
    const struct hw_lane_api *api;
    bool dirty; /* work went since the program last waited for it */
    bool loose; /* some of it stands before no mark and in no piece */
    bool gone;  /* the stream is no more, but what it had in flight goes on */
    uint32_t slot, first, count, pieces;
    struct batch open, ring[BATCHES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hw_channel *channel;
static struct lane lanes[HW_LANES];
static uint32_t used; /* of them; looking at all of them would be slow */
static void *last_dirty; /* the lane whose work went last: it is dirty for sure */
static uint64_t passes, unsaid, flight_ns, finished_ns, looked_ns, turn_ns;
static bool asking, told; /* a thread waits for a turn; one was begun with the asking for it */
static int jobs;          /* the program says itself when its job is over */
static uint64_t job_ns, job_deadline_ns;
static uint64_t ended, stuck_at; /* batches done so far, and when nothing more got done */
static bool stuck;
static _Thread_local int inside;
static _Thread_local uint64_t called_ns; /* when this thread's work passed */

uint64_t hw_mix(uint64_t hash, uint64_t value) { /* FNV-1a over whole words */
    return (hash ^ value) * 0x100000001b3ull;
}

bool hw_turn_inside(void) { return inside; }

/* ---- lanes and marks ------------------------------------------------------------------------- */

static struct lane *lane_of(const struct hw_lane_api *api, void *key) {
    static struct lane *last;
    if (last && last->key == key) return last;
    struct lane *unused = used < HW_LANES ? &lanes[used] : NULL;
    for (uint32_t i = used; i-- > 0;) {
        struct lane *lane = &lanes[i];
        if (lane->key == key) return last = lane;
        if (!lane->key || (!lane->dirty && !lane->count && !lane->open.works && !lane->open.gated)) unused = lane;
    }
    if (!unused) return NULL;
    unused->key = key;
    unused->api = api;
    unused->slot = (uint32_t)(unused - lanes);
    if (used <= unused->slot) used = unused->slot + 1;
    unused->dirty = unused->loose = false;
    return unused;
}

static void bury(struct lane *lane) {
    lane->key = NULL;
    lane->dirty = lane->loose = lane->gone = false;
}

static void show_marks(void) {
    bool open = false;
    for (uint32_t i = 0; i < used; i++)
        open |= lanes[i].loose || (lanes[i].open.works && !lanes[i].open.gated);
    channel->page->unmarked = open;
}

/* Batches found done together, waiting to be booked. */
static struct batch found[2 * HW_LANES];
static uint32_t found_count;

static bool in_flight(void);

/* Pieces wait for the gate, so from when to when they ran is not known. But if it was open since the last booking, and
 * there was something to do at both, they ran all the time. */
static bool ran_all_the_time(void) {
    static uint32_t lease_before;
    static bool fed_before;
    uint32_t lease = channel->daemon ? __atomic_load_n(&channel->daemon->lease, __ATOMIC_ACQUIRE) : 0;
    bool fed = in_flight(), all = fed && fed_before && lease && lease == lease_before;
    lease_before = lease;
    fed_before = fed;
    return all;
}

/* They ran from max(submit, previous finish) to now, so lanes side by side are counted once. What each
 * of them took is not seen when they are found together: it is shared out as it was predicted. */
static void book(uint64_t now, bool exact) {
    static bool late; /* the last finish was seen late */
    uint64_t cost = 0, start = now;
    if (!found_count) return;
    for (uint32_t i = 0; i < found_count; i++) {
        cost += found[i].sum.ns;
        if (found[i].issued_ns < start) start = found[i].issued_ns;
    }
    bool follows = start < finished_ns;
    if (follows) start = finished_ns;
    uint64_t took = now > start ? now - start : 0;
    for (uint32_t i = 0; i < found_count; i++) {
        struct batch *b = &found[i];
        uint64_t part = cost ? (uint64_t)((double)took * (double)b->sum.ns / (double)cost) : 0;
        if (b->gated) continue;
        if (b->works) hw_cost_learn(&b->sum, (struct hw_sight){part, follows && late, !exact}, b->doubtful);
        flight_ns -= b->sum.ns < flight_ns ? b->sum.ns : flight_ns;
    }
    bool gated = found[0].gated, all = ran_all_the_time();
    uint64_t ran = exact || (gated && all) || took < cost ? took : cost;
    if (channel->page) channel->page->used_ns += ran;
    /* Pieces are looked at late: when the last one was probably done is where the next began. */
    uint64_t finish = gated ? start + ran : now;
    if (finish > finished_ns) finished_ns = finish;
    late = !exact;
    found_count = 0;
}

/* What a piece took, where events tell it. */
static void measure(const struct lane *lane, struct batch *b) {
    uint64_t took = b->ended ? lane->api->between(b->begun, b->ended) : 0;
    if (took) hw_cost_learn(&b->sum, (struct hw_sight){took, false, b->starved}, false);
    lane->api->forget_time(b->begun);
    if (b->ended) lane->api->forget_time(b->ended);
    b->begun = b->ended = NULL;
}

/* Pieces that the watchdog found done: it must not ask the driver what they took. */
static struct {
    const struct lane *lane;
    struct batch batch;
} measurable[MEASURABLE];
static uint32_t measurables;

static void measure_all(void) {
    while (measurables) {
        measurables--;
        measure(measurable[measurables].lane, &measurable[measurables].batch);
    }
}

static void find_done(const struct lane *lane, struct batch *b, uint64_t now, bool exact) {
    if (b->begun) measure(lane, b);
    found[found_count++] = *b;
    ended++;
    if (found_count == sizeof found / sizeof *found) book(now, exact);
}

static bool has_reached(volatile uint32_t *word, uint32_t value) {
    return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0;
}

static bool is_written(const struct batch *b) { return has_reached(b->word, b->seq); }

/* Of a piece: its `opened` stands before its `closed`. */
static bool is_begun(const struct batch *b) { return has_reached(b->word - HW_LANES, b->seq); }

void hw_turn_written(volatile uint32_t *word, uint32_t value) {
    uint32_t old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while ((int32_t)(old - value) < 0)
        if (__atomic_compare_exchange_n(word, &old, value, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
}

/* An event says it to us; the word says it to the daemon. */
static void forget_event(const struct lane *lane, struct batch *b) {
    hw_turn_written(b->word, b->seq);
    lane->api->forget(b->event);
    b->event = NULL;
}

static bool is_done(const struct lane *lane, struct batch *b) {
    if (!b->event) return is_written(b);
    if (!lane->api->event_done(b->event)) return false;
    forget_event(lane, b);
    return true;
}

/* Seen soon after it happened: within some microseconds, or a small part of what it took. */
static bool is_soon(const struct batch *b, uint64_t now) {
    uint64_t start = b->issued_ns > finished_ns ? b->issued_ns : finished_ns;
    uint64_t late = now - looked_ns;
    return late < CLOSE_NS || (start < now && late < (now - start) / 16);
}

static void reap(uint64_t now) {
    bool exact = true;
    for (uint32_t i = 0; i < used; i++) {
        struct lane *lane = &lanes[i];
        while (lane->count && is_done(lane, &lane->ring[lane->first % BATCHES])) {
            struct batch *b = &lane->ring[lane->first++ % BATCHES];
            exact = exact && !b->gated && is_soon(b, now);
            find_done(lane, b, now, exact);
            lane->count--;
        }
        if (lane->gone && !lane->count) bury(lane);
    }
    book(now, exact);
    looked_ns = now;
}

static void send_off(struct lane *lane) {
    lane->ring[(lane->first + lane->count++) % BATCHES] = lane->open;
    memset(&lane->open, 0, sizeof lane->open);
}

/* A mark behind what the lane has got so far. */
static void close_batch(struct lane *lane) {
    struct batch *b = &lane->open;
    if (!channel->page || lane->gone || lane->count == BATCHES || !lane->api->may_mark(lane->key)) return;
    if (b->gated || (!b->works && !lane->loose)) return;
    b->word = &channel->page->done[lane->slot];
    b->seq = channel->page->issued[lane->slot] + 1;
    b->event = NULL;
    if (!b->works) b->issued_ns = turn_ns;
    if (!lane->api->mark(lane->key, b->word, b->seq, &b->event)) return;
    channel->page->issued[lane->slot] = b->seq;
    lane->loose = false;
    send_off(lane);
}

static void close_all(void) {
    for (uint32_t i = 0; i < used; i++)
        if (lanes[i].key) close_batch(&lanes[i]);
    last_dirty = NULL;
    show_marks();
}

static bool in_flight(void) {
    for (uint32_t i = 0; i < used; i++)
        if (lanes[i].count) return true;
    return false;
}

static void lane_is_done(struct lane *lane, uint64_t now);

/* A program whose GPU work broke gets no more marks: ask the driver what became of it. */
static void look_for_broken(uint64_t now) {
    for (uint32_t i = 0; i < used; i++) {
        struct lane *lane = &lanes[i];
        if (!lane->key || !lane->count) continue;
        if (lane->gone || (lane->api->may_mark(lane->key) && lane->api->lane_done(lane->key)))
            lane_is_done(lane, now);
    }
    book(now, false);
}

static void nap(long ns) {
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    pthread_mutex_lock(&lock);
}

static void breathe(uint64_t since, uint64_t now) {
    if (now - since > BROKEN_NS) look_for_broken(now);
    pthread_mutex_unlock(&lock);
    if (now - since > SPIN_NS) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    pthread_mutex_lock(&lock);
}

/* Whether the program itself keeps some of its work from being done. */
static bool is_held_back(void) {
    for (uint32_t i = 0; i < used; i++)
        if (lanes[i].key && lanes[i].api->held_back && lanes[i].api->held_back()) return true;
    return false;
}

/* Nothing got done for too long, since `since` or since `before` batches were done. Once that was found
 * out it is hardly waited for again until something gets done. */
static bool is_stuck(uint64_t *since, uint64_t *before, uint64_t now) {
    if (*before != ended) {
        *before = ended;
        *since = now;
    }
    bool again = stuck && stuck_at == ended, held = is_held_back();
    uint64_t limit = 4 * flight_ns < STUCK_AT_MOST_NS ? 4 * flight_ns : STUCK_AT_MOST_NS;
    if (limit < STUCK_NS) limit = STUCK_NS;
    if (again || held) limit = again && held ? 0 : HELD_NS;
    bool over = now - *since >= limit;
    stuck = again || over;
    stuck_at = ended;
    return over;
}

/* ---- turns -------------------------------------------------------------------------------------- */

/* The daemon may look at the page all the time, and a word that two CPUs use is slow: what passes is counted apart. */
static void say_passed(void) {
    if (!unsaid || !channel->page) return;
    channel->page->passed += unsaid;
    unsaid = 0;
}

static bool leased(void) { return channel->daemon && __atomic_load_n(&channel->daemon->lease, __ATOMIC_ACQUIRE); }

/* Nothing of the program is on the GPU: the turn may go to somebody else. */
static void let_go(bool last) {
    told = false;
    last_dirty = NULL;
    if (!channel->page) return;
    channel->page->last_ns = finished_ns;
    channel->page->gated = 0;
    __atomic_store_n(&channel->page->busy, 0, __ATOMIC_SEQ_CST);
    if (asking) return; /* by another thread: what it asks for must not be given back */
    bool wanted = __atomic_load_n(&channel->daemon->wanted, __ATOMIC_SEQ_CST);
    if (wanted || !__atomic_load_n(&channel->daemon->lease, __ATOMIC_SEQ_CST))
        last ? hw_gate_rest(channel) : (void)hw_gate_tell(channel, HW_RELEASE, false);
}

/* The turn was taken back: what is in flight is waited for, then it is given. */
static void drain(void) {
    close_all();
    uint64_t since = hw_now(), before = ended;
    for (uint64_t now = since; in_flight(); now = hw_now()) {
        reap(now);
        if (in_flight() && is_stuck(&since, &before, now)) break;
        if (in_flight()) breathe(since, now);
        if (!channel->page) return;
    }
    if (channel->page && channel->page->busy && !leased()) let_go(false);
}

/* A turn that began with the asking goes on until the daemon has looked at it: then there is a lease, or
 * somebody more important was first. It clears `at_once` after it has given the lease. */
static bool is_early(void) {
    told = told && __atomic_load_n(&channel->daemon->at_once, __ATOMIC_ACQUIRE);
    return told;
}

/* Another thread asks: the lease will show, or there will be nobody to ask. Until then the channel is its own. */
static bool follow(void) {
    while (asking) {
        if (hw_gate_take_lease(channel)) return true;
        nap(50000);
    }
    return false;
}

/* When the gate closes, the daemon asks again for those who have pieces waiting; for a piece that came just after,
 * it must be told. */
static void ask_again(void) {
    static uint64_t asked_ns;
    if (leased() || asking || __atomic_load_n(&channel->daemon->waits, __ATOMIC_SEQ_CST)) return;
    uint64_t now = hw_now();
    if (now - asked_ns < ASK_AGAIN_NS) return;
    asked_ns = now;
    hw_gate_announce(channel);
}

/* Waits for the turn, with the lock held but while it waits. */
static bool begin_turn(void) {
    for (;;) {
        if (follow()) return true;
        if (!hw_gate_reach(channel, hw_now())) return false;
        if (is_early() || hw_gate_take_lease(channel)) return true;
        if (channel->page->busy && channel->page->gated) { /* it has asked already */
            ask_again();
            nap(50000);
            continue;
        }
        if (channel->page->busy) {
            drain();
            continue;
        }
        if (__atomic_load_n(&channel->daemon->at_once, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&channel->page->busy, 1, __ATOMIC_SEQ_CST);
            return told = hw_gate_announce(channel);
        }
        asking = true;
        pthread_mutex_unlock(&lock);
        bool granted = hw_gate_ask(channel);
        pthread_mutex_lock(&lock);
        asking = false;
        if (!granted) return false;
    }
}

/* Predictions are no better than an eighth, so neither is the window. */
static void wait_for_room(uint64_t cost, uint64_t window) {
    uint64_t since = hw_now(), before = ended;
    window += cost < window / 4 ? cost / 2 : window / 8;
    for (uint64_t now = since; flight_ns && flight_ns + cost > window && leased(); now = hw_now()) {
        close_all();
        if (!in_flight()) return; /* nothing can be marked now */
        reap(now);
        if (!flight_ns || flight_ns + cost <= window) return;
        if (is_stuck(&since, &before, now)) {
            if (channel->page) channel->page->implicit++;
            return;
        }
        breathe(since, now);
    }
}

/* ---- pieces: work that waits on the GPU ------------------------------------------------------------------ */

/* Where the GPU itself can wait for the daemon, a program need not: its work goes to the GPU in pieces, no longer
 * than the window, and each begins when the gate is open. So the program may be far ahead of the GPU, as without
 * us, and no more than a piece of a lane runs on when the gate closes. */

static void send_piece_off(struct lane *lane) {
    const struct batch *b = &lane->open;
    if (b->word == &channel->page->closed[lane->slot]) channel->page->ended[lane->slot] = b->seq;
    send_off(lane);
}

/* When a piece that is measured ends. */
static void take_time(struct lane *lane) {
    struct batch *b = &lane->open;
    if (b->begun && !b->ended) lane->api->time(lane->key, &b->ended);
}

/* Room for another piece, and for that one's end: it must never be put off. */
static bool has_room(const struct lane *lane) { return lane->count + lane->open.gated < BATCHES; }

/* Behind the work so far, if there is any, the next piece begins. */
static bool begin_piece(struct lane *lane, bool measured) {
    volatile struct hw_client_page *page = channel->page;
    struct batch *b = &lane->open;
    close_batch(lane);
    if ((b->works && !b->gated) || !has_room(lane) || !lane->api->may_mark(lane->key)) return false;
    struct batch *last = lane->count ? &lane->ring[(lane->first + lane->count - 1) % BATCHES] : NULL;
    struct batch next = {.gated = true, .seq = page->given[lane->slot] + 1, .word = &page->closed[lane->slot]};
    struct hw_piece piece = {.open = &page->open, .opened = &page->opened[lane->slot], .number = next.seq};
    next.starved = !b->gated && (!last || is_written(last));
    if (b->gated) {
        take_time(lane);
        piece.closed = b->word;
        piece.before = b->seq;
    }
    if (!lane->api->gate(lane->key, &piece)) return false;
    if (b->gated) send_piece_off(lane);
    __atomic_store_n(&page->given[lane->slot], next.seq, __ATOMIC_SEQ_CST);
    *b = next;
    say_passed();
    if (measured) lane->api->time(lane->key, &b->begun);
    return true;
}

static void end_piece(struct lane *lane) {
    struct batch *b = &lane->open;
    struct hw_piece piece = {.closed = b->word, .before = b->seq};
    if (!b->gated || !lane->api->may_mark(lane->key)) return;
    take_time(lane);
    if (lane->api->gate(lane->key, &piece)) send_piece_off(lane);
}

/* A piece that has begun must not wait for one that has not: where lanes wait for each other without being told to,
 * no two of them are in the middle of one. */
static void end_pieces_beside(const struct lane *lane) {
    static void *last;
    if (last == lane->key) return;
    last = lane->key;
    for (uint32_t i = 0; i < used; i++) {
        struct lane *other = &lanes[i];
        if (other == lane || !other->key || !other->open.gated) continue;
        if (lane->api->joins(lane->key) || other->api->joins(other->key)) end_piece(other);
    }
}

/* Whether this turn is one of pieces, or can become one; it is asked for if it is not there. Nobody waits. */
static bool begin_pieces(void) {
    volatile struct hw_client_page *page = channel->page;
    if (page->busy && page->gated) return true;
    if (page->busy && leased()) {
        close_all();
        __atomic_store_n(&page->gated, 1, __ATOMIC_SEQ_CST);
        if (leased()) return true; /* else the daemon may have looked before */
        page->gated = 0;
    }
    if (page->busy) drain();
    if (!channel->page || channel->fd < 0) return false;
    page = channel->page;
    if (page->busy) return false;
    page->gated = 1;
    if (hw_gate_take_lease(channel)) return true;
    __atomic_store_n(&page->busy, 1, __ATOMIC_SEQ_CST);
    return asking || hw_gate_announce(channel);
}

/* The program is as far ahead as it may be. While the gate is closed that is no wonder; else it may be its own
 * doing. */
static void wait_for_pieces(const struct lane *lane) {
    uint64_t since = hw_now(), before = ended;
    for (uint64_t now = since; !has_room(lane); now = hw_now()) {
        reap(now);
        if (has_room(lane)) return;
        if (!leased()) since = now;
        if (is_stuck(&since, &before, now) || !hw_gate_reach(channel, now)) return;
        if (now - since > BROKEN_NS) look_for_broken(now);
        ask_again();
        nap(100000);
    }
}

/* Nothing is added to a piece that has begun once the gate is closed. */
static bool fits(const struct batch *b, const struct hw_cost *cost, uint64_t window) {
    if (!b->gated || b->unknown || (b->works && cost->seen < HW_KNOWN)) return false;
    if (!leased() && is_begun(b)) return false;
    return !b->works || b->sum.ns + hw_cost_of(cost, window) <= window + window / 8;
}

/* The program may be far ahead and say nothing for long: its books are kept for it. */
static void keep_books(void) {
    if (pthread_mutex_trylock(&lock)) return;
    uint64_t now = hw_now();
    for (uint32_t i = 0; i < used; i++) {
        struct lane *lane = &lanes[i];
        while (lane->count) {
            struct batch *b = &lane->ring[lane->first % BATCHES];
            if (!b->gated || !is_written(b) || (b->begun && measurables == MEASURABLE)) break;
            if (b->begun) {
                measurable[measurables].lane = lane;
                measurable[measurables++].batch = *b;
                b->begun = b->ended = NULL;
            }
            find_done(lane, b, now, false);
            lane->first++;
            lane->count--;
        }
    }
    book(now, false);
    bool waits = false;
    for (uint32_t i = 0; i < HW_LANES && channel->page; i++)
        waits |= channel->page->opened[i] != channel->page->given[i];
    say_passed();
    if (waits) ask_again(); /* whatever went wrong, nothing is to wait for a turn that nobody knows of */
    pthread_mutex_unlock(&lock);
}

/* The work goes with the piece. Where it is long, or nobody knows how long, it ends that; else the next piece does,
 * which costs the GPU less, and until then its end is a prediction. */
static enum hw_pass add_to_piece(struct lane *lane, struct hw_cost *cost, uint64_t window) {
    struct batch *b = &lane->open;
    if (!b->works) b->issued_ns = hw_now();
    b->unknown |= cost->seen < HW_KNOWN;
    hw_cost_add(&b->sum, cost, hw_cost_of(cost, window));
    b->works++;
    if (b->works == 1 || b->sum.ns > window) channel->page->piece_ns = b->sum.ns > window ? b->sum.ns : window;
    return b->unknown || b->sum.ns >= 2 * window ? HW_ENDING : HW_GATED;
}

/* HW_FREE: it cannot go that way. */
static enum hw_pass pass_in_piece(const struct hw_lane_api *api, void *key, uint64_t signature) {
    static uint32_t number;
    if (!api->can_gate || !api->can_gate()) return HW_FREE;
    /* Every now and then it is looked whether the daemon lives. */
    if ((number++ % 16 == 0 || channel->fd < 0) && !hw_gate_reach(channel, hw_now())) return HW_FREE;
    uint64_t window = channel->daemon->window_ns;
    if (!window && !(channel->page->busy && channel->page->gated)) return HW_FREE;
    if (!window) window = WIDE_NS;
    if (!api->may_mark(key) || !hw_watchdog_start(channel, keep_books) || !begin_pieces()) return HW_FREE;
    struct lane *lane = lane_of(api, key);
    if (!lane) return HW_FREE;
    end_pieces_beside(lane);
    struct hw_cost *cost = hw_cost_find(signature);
    if (!fits(&lane->open, cost, window)) {
        measure_all();
        reap(hw_now());
        wait_for_pieces(lane);
        if (!channel->page) return HW_FREE;
        if (begin_piece(lane, cost->seen < HW_KNOWN || lane->pieces++ % SAMPLED == 0)) ask_again();
        else if (!lane->open.gated) return HW_FREE;
    }
    return add_to_piece(lane, cost, window);
}

static void make_channel(void) {
    static char key;
    channel = hw_channel_take(&key);
    if (channel) channel->turns = true;
}

static void in_child(void) {
    pthread_mutex_init(&lock, NULL);
    memset(lanes, 0, used * sizeof *lanes);
    used = 0;
    hw_watchdog_gone();
    flight_ns = measurables = 0;
    asking = told = stuck = false;
    last_dirty = NULL;
}

static enum hw_pass pass_slowly(const struct hw_lane_api *api, void *key, uint64_t signature) {
    static bool forks;
    enum hw_pass pass = HW_FREE;
    if (!channel) make_channel();
    if (!channel) return pass;
    if (!forks) forks = !pthread_atfork(NULL, NULL, in_child);
    enum hw_pass piece = pass_in_piece(api, key, signature);
    pass = piece;
    for (bool again = false; piece == HW_FREE && begin_turn(); again = true) {
        uint64_t window = channel->daemon->window_ns;
        pass = window ? HW_WATCHED : HW_FAST;
        if (window) wait_for_room(hw_cost_of(hw_cost_find(signature), window), window);
        /* It may have been taken back while there was no room, but not for ever: each grant lets something go. */
        if (told || !window || leased() || again) break;
        pass = HW_FREE;
    }
    if (channel->page) {
        if (pass == HW_FREE) channel->page->free_groups++;
        else unsaid++;
        if (piece == HW_FREE) say_passed();
    }
    struct lane *lane = lane_of(api, key);
    if (lane) lane->dirty = true;
    if (lane && (pass == HW_FREE || pass == HW_FAST)) lane->loose = true;
    last_dirty = lane && lane->loose ? key : NULL;
    if (!turn_ns) turn_ns = hw_now();
    return pass;
}

enum hw_pass hw_turn_pass(const struct hw_lane_api *api, void *key, uint64_t signature) {
    struct hw_channel *c = channel;
    if (inside || !hw_gate_enabled()) return HW_FREE;
    const volatile struct hw_daemon_page *daemon = c ? c->daemon : NULL;
    volatile struct hw_client_page *page = c ? c->page : NULL;
    /* Every now and then the slow way looks whether the daemon lives. */
    if (page && daemon && last_dirty == key && ++passes % 256 && !daemon->window_ns && page->busy &&
        !page->gated && __atomic_load_n(&daemon->lease, __ATOMIC_ACQUIRE)) {
        unsaid++;
        return HW_FAST;
    }
    int error = errno;
    inside++;
    pthread_mutex_lock(&lock);
    enum hw_pass pass = pass_slowly(api, key, signature);
    if (channel && channel->page && pass < HW_GATED) channel->page->unmarked = 1;
    pthread_mutex_unlock(&lock);
    inside--;
    errno = error;
    if (pass == HW_WATCHED) called_ns = hw_now();
    return pass;
}

static void watch_passed(struct lane *lane, uint64_t signature) {
    uint64_t window = channel->daemon->window_ns, now = hw_now();
    struct hw_cost *c = hw_cost_find(signature);
    struct batch *b = &lane->open;
    uint64_t cost = hw_cost_of(c, window);
    if (b->gated) return;
    if (!b->works) b->issued_ns = now;
    b->doubtful |= now - called_ns > CALL_NS;
    hw_cost_add(&b->sum, c, cost);
    b->works++;
    flight_ns += cost;
    if (c->seen < HW_KNOWN || b->sum.parts == HW_PARTS || b->sum.ns * PIECES >= window) close_batch(lane);
    show_marks();
}

void hw_turn_passed(const struct hw_lane_api *api, void *key, uint64_t signature, enum hw_pass pass) {
    if (pass != HW_WATCHED && pass != HW_ENDING) return;
    int error = errno;
    inside++;
    pthread_mutex_lock(&lock);
    struct lane *lane = channel->page && channel->daemon ? lane_of(api, key) : NULL;
    if (lane && pass == HW_ENDING) end_piece(lane);
    else if (lane) watch_passed(lane, signature);
    pthread_mutex_unlock(&lock);
    inside--;
    errno = error;
}

/* Whatever the GPU has written of it. If that was nothing it is broken, or only we think so: then what waits for the
 * gate must not do it for ever. */
static void say_done(const struct lane *lane, struct batch *b) {
    if (b->event) forget_event(lane, b);
    if (!b->gated) return;
    if (!is_begun(b) && channel->page) __atomic_store_n(&channel->page->open, 1, __ATOMIC_SEQ_CST);
    hw_turn_written(b->word, b->seq);
    hw_turn_written(b->word - HW_LANES, b->seq);
}

/* Pieces that the GPU has not done for sure, though somebody waited for something. */
static bool has_pieces(const struct lane *lane) {
    if (lane->open.gated && !is_begun(&lane->open)) return true;
    for (uint32_t i = 0; i < lane->count; i++) {
        const struct batch *b = &lane->ring[(lane->first + i) % BATCHES];
        if (b->gated && !is_written(b)) return true;
    }
    return false;
}

static void lane_is_done(struct lane *lane, uint64_t now) {
    for (; lane->count; lane->count--) {
        struct batch *b = &lane->ring[lane->first++ % BATCHES];
        say_done(lane, b);
        find_done(lane, b, now, false);
    }
    say_done(lane, &lane->open);
    if (lane->open.works || lane->open.begun) find_done(lane, &lane->open, now, false);
    memset(&lane->open, 0, sizeof lane->open);
    lane->dirty = lane->loose = false;
    if (lane->gone) bury(lane);
}

/* All work was waited for: the job is over, and with it the turn. */
static void rest(uint64_t now) {
    volatile struct hw_client_page *page = channel->page;
    uint64_t deadline = job_deadline_ns ? job_deadline_ns : channel->daemon ? channel->daemon->deadline_ns : 0;
    uint64_t since = job_ns ? job_ns : turn_ns;
    if (page && channel->daemon && !channel->daemon->window_ns && !page->gated && turn_ns) {
        uint64_t start = turn_ns > finished_ns ? turn_ns : finished_ns;
        if (now > start) page->used_ns += now - start;
    }
    if (page && since) {
        page->jobs++;
        if (deadline && now - since > deadline) page->misses++;
    }
    finished_ns = now;
    turn_ns = flight_ns = 0;
    if (page) page->unmarked = 0;
    let_go(true);
}

/* What was waited for: a lane by its name, or every one; or there are none any more. */
enum extent { NAMED, EVERY, GONE };

static void settle(void *key, enum extent extent) {
    if (!channel || inside) return;
    int error = errno;
    inside++;
    pthread_mutex_lock(&lock);
    uint64_t now = hw_now();
    bool dirty = false, was = false;
    for (uint32_t i = 0; i < used; i++) {
        struct lane *lane = &lanes[i];
        if (!lane->key) continue;
        was |= lane->dirty;
        if (extent == GONE || ((lane->key == key || extent == EVERY) && !has_pieces(lane))) lane_is_done(lane, now);
        else if (lane->dirty && !lane->gone && lane->api->may_mark(lane->key) && lane->api->lane_done(lane->key))
            lane_is_done(lane, now);
        dirty |= lane->dirty;
    }
    book(now, false);
    say_passed();
    last_dirty = NULL;
    if (was && !dirty && !jobs && !job_ns) rest(now);
    else if (channel->page) show_marks();
    pthread_mutex_unlock(&lock);
    inside--;
    errno = error;
}

void hw_turn_synced(void *lane, bool all) { settle(lane, all ? EVERY : NAMED); }

void hw_turn_waiting(int change) {
    static int threads;
    int now = __atomic_add_fetch(&threads, change, __ATOMIC_RELAXED);
    volatile struct hw_client_page *page = channel ? channel->page : NULL;
    if (page && !inside) page->waiting = (uint32_t)now;
}

void hw_turn_waits(void *key, bool all) {
    if (!channel || inside || !channel->page || !channel->page->gated) return;
    int error = errno;
    inside++;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < used; i++)
        if (lanes[i].key && (all || lanes[i].key == key)) end_piece(&lanes[i]);
    pthread_mutex_unlock(&lock);
    inside--;
    errno = error;
}

void hw_turn_look(void) {
    const volatile struct hw_daemon_page *daemon = channel ? channel->daemon : NULL;
    /* Only who waits for this turn, or a deadline, makes it worth looking. */
    if (daemon && (daemon->wanted || daemon->deadline_ns || !daemon->lease)) settle(ALL, NAMED);
    if (!daemon || inside || !unsaid) return;
    pthread_mutex_lock(&lock);
    say_passed();
    pthread_mutex_unlock(&lock);
}

void hw_turn_failed(void) { settle(ALL, NAMED); }

/* Nobody can ask the stream any more: a mark behind its last work will tell. */
static void part_with(void *key) {
    pthread_mutex_lock(&lock);
    inside++;
    reap(hw_now());
    for (uint32_t i = 0; i < used; i++) {
        struct lane *lane = &lanes[i];
        if (!key || lane->key != key) continue;
        close_batch(lane);
        end_piece(lane);
        if (!lane->count) lane_is_done(lane, hw_now());
        lane->gone = lane->count;
        lane->key = lane->gone ? &lane->open : NULL; /* what no new stream is called */
    }
    book(hw_now(), false);
    inside--;
    pthread_mutex_unlock(&lock);
}

void hw_turn_end_lane(void *key, bool all) {
    if (!channel || inside) return;
    int error = errno;
    if (!all) part_with(key);
    settle(ALL, all ? GONE : NAMED);
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; all && i < used; i++) lanes[i].key = NULL;
    if (all && channel->page) channel->page->open = 1; /* nothing may wait for its turn while its context goes */
    pthread_mutex_unlock(&lock);
    errno = error;
}

/* ---- what a program may say itself --------------------------------------------------------------------- */

#define EXPORT __attribute__((visibility("default")))
EXPORT void headway_job_begin(uint64_t deadline_ns);
EXPORT void headway_job_end(void);

/* Until the job ends, waiting for the GPU does not end the turn. Jobs may stand in jobs: the outermost counts. */
void headway_job_begin(uint64_t deadline_ns) {
    pthread_mutex_lock(&lock);
    if (!jobs++) {
        job_ns = hw_now();
        job_deadline_ns = deadline_ns;
    }
    pthread_mutex_unlock(&lock);
}

void headway_job_end(void) {
    pthread_mutex_lock(&lock);
    bool over = jobs > 0 && !--jobs;
    pthread_mutex_unlock(&lock);
    if (!over) return;
    settle(ALL, NAMED);
    pthread_mutex_lock(&lock);
    bool dirty = false;
    for (uint32_t i = 0; i < used; i++) dirty |= lanes[i].key && lanes[i].dirty;
    if (channel && !dirty && job_ns) rest(hw_now());
    job_ns = job_deadline_ns = 0;
    pthread_mutex_unlock(&lock);
}
