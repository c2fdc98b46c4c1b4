/* Pieces: work that waits on the GPU. Where the GPU itself can wait for the daemon, a program need not: its work goes
 * to the GPU in pieces, no longer than the window, and each begins when the gate is open. So the program may be far
 * ahead of the GPU, as without us, and no more than a piece of a lane runs on when the gate closes. */
#include "lanes.h"
#include "watchdog.h"

/* Ticks are measured over so long a time at least. */
#define RATE_NS 10000000u
/* Who looked at its pieces so long ago may not do it again soon. */
#define BOOKS_NS 2000000u
/* What is in flight is looked at after each such part of a window. */
#define PARTS 8
/* Pieces are measured one after the other where predictions are bad, and seldom where they are good. */
static bool is_sampled(struct lane *lane) {
    if (++lane->unmeasured < hw.every) return false;
    lane->unmeasured = 0;
    return true;
}

static void send_piece_off(struct lane *lane) {
    const struct batch *b = &lane->open;
    struct hw_client_page *page = hw_page();
    if (b->word == &page->closed[lane->slot]) hw_store(&page->ended[lane->slot], b->seq);
    lane->loose = false;
    hw_lane_send_off(lane);
}

/* What of the open piece the GPU has yet to do, as predicted: nothing is done before it was seen to have begun. */
static uint64_t left_of(struct lane *lane) {
    uint64_t now = hw_now(), ran = lane->runs ? now - lane->looked_ns : 0;
    lane->left_ns = (lane->left_ns > ran ? lane->left_ns - ran : 0) + lane->added_ns;
    lane->added_ns = 0;
    lane->looked_ns = now;
    lane->runs = hw_is_begun(&lane->open);
    return lane->left_ns;
}

/* When a piece that is measured ends. If the GPU has nothing left to do it may have waited for work in it. */
static void take_time(struct lane *lane) {
    struct batch *b = &lane->open;
    if (!b->begun || b->ended) return;
    b->starved |= !left_of(lane);
    lane->api->time(lane->key, &b->ended);
}

/* Whether other lanes have work, too: side by side it takes longer than predicted. */
static bool others_have_work(const struct lane *lane) {
    for (uint32_t i = 0; i < hw.used; i++)
        if (&hw.lanes[i] != lane && (hw.lanes[i].count || hw.lanes[i].open.works)) return true;
    return false;
}

/* Room for another piece, and for that one's end: it must never be put off. */
static bool has_room(const struct lane *lane) { return lane->count + lane->open.gated < BATCHES; }

/* What stands before no mark. That may be on other lanes, too, where it went while there was no daemon: nothing else
 * would tell its end. */
static void mark_before_piece(struct lane *lane) {
    if (!hw_load(&hw_page()->unmarked)) {
        hw_lane_mark(lane);
        return;
    }
    for (uint32_t i = 0; i < hw.used; i++)
        if (hw.lanes[i].loose && !hw.lanes[i].gone) hw_piece_end(&hw.lanes[i]);
    hw_lanes_mark();
}

/* Behind the work so far, if there is any, the next piece begins. */
static bool begin_piece(struct lane *lane, bool measured) {
    struct hw_client_page *page = hw_page();
    struct batch *b = &lane->open;
    mark_before_piece(lane);
    if ((b->works && !b->gated) || !has_room(lane) || !lane->api->may_mark(lane->key)) return false;
    struct batch *last = lane->count ? &lane->ring[(lane->first + lane->count - 1) % BATCHES] : NULL;
    uint32_t seq = hw_load(&page->given[lane->slot]) + 1;
    struct hw_piece piece = {.open = &page->open, .opened = &page->opened[lane->slot], .number = seq};
    bool starved = b->gated ? !left_of(lane) : !last || hw_is_written(last);
    if (b->gated) {
        take_time(lane);
        piece.closed = b->word;
        piece.before = b->seq;
    }
    if (!lane->api->gate(lane->key, &piece)) return false;
    if (b->gated) send_piece_off(lane);
    hw_store_full(&page->given[lane->slot], seq);
    hw_batch_clear(b);
    b->gated = true;
    b->seq = seq;
    b->word = &page->closed[lane->slot];
    b->starved = starved;
    lane->left_ns = lane->added_ns = 0;
    lane->runs = false;
    hw_turn_say_passed();
    if (measured) lane->api->time(lane->key, &b->begun);
    return true;
}

/* Whether nothing but the program's own work may follow the piece: the GPU takes a single group off for others once its
 * time slice is over, but not while a mark stands behind the group. */
static bool is_left_alone(const struct batch *b) {
    uint64_t slice = hw_load(&hw_daemon()->slice_ns);
    return slice && b->sum.ns >= slice && b->works == 1 && !b->begun;
}

void hw_piece_end_before_wait(struct lane *lane) {
    if (!is_left_alone(&lane->open)) hw_piece_end(lane);
}

void hw_piece_end(struct lane *lane) {
    struct batch *b = &lane->open;
    struct hw_piece piece = {.closed = b->word, .before = b->seq};
    if (!b->gated || !lane->api->may_mark(lane->key)) return;
    take_time(lane);
    if (lane->api->gate(lane->key, &piece)) send_piece_off(lane);
}

/* A piece that has begun must not wait for one that has not: where lanes wait for each other without being told to,
 * no two of them are in the middle of one. */
static void end_other_pieces(const struct lane *lane) {
    if (hw.piece_of == lane->key) return;
    hw.piece_of = lane->key;
    for (uint32_t i = 0; i < hw.used; i++) {
        struct lane *other = &hw.lanes[i];
        if (other == lane || !other->key || !other->open.gated) continue;
        if (lane->api->joins(lane->key) || other->api->joins(other->key)) hw_piece_end(other);
    }
}

/* Whether this turn is one of pieces, or can become one; it is asked for if it is not there. Nobody waits. */
static bool begin_pieces(void) {
    struct hw_client_page *page = hw_page();
    if (hw_load(&page->busy) && hw_load(&page->gated)) return true;
    if (hw_load(&page->busy) && hw_turn_leased()) {
        hw_lanes_mark();
        hw_store_full(&page->gated, 1);
        if (hw_turn_leased()) return true; /* else the daemon may have looked before */
        hw_store(&page->gated, 0);
    }
    if (hw_load(&page->busy)) hw_turn_drain();
    page = hw_page();
    if (!page || !hw_gate_is_connected(hw_channel()) || hw_load(&page->busy)) return false;
    hw_store(&page->gated, 1);
    if (hw_gate_take_lease(hw_channel())) return true;
    hw_store_full(&page->busy, 1);
    return hw.asking || hw_gate_announce(hw_channel());
}

static void wait_for_pieces(struct lane *lane) {
    uint64_t since = hw_now(), before = hw.ended;
    for (uint64_t now = since; !has_room(lane); now = hw_now()) {
        hw_lanes_reap(now);
        if (has_room(lane)) return;
        if (!hw_turn_leased()) since = now;
        if (hw_turn_is_stuck(&since, &before, now) || !(hw.asking || hw_gate_reach(hw_channel(), now))) return;
        if (now - since > BROKEN_NS) hw_lanes_look_for_broken(now);
        hw_turn_ask_again();
        hw_turn_nap(100000);
    }
}

static bool can_stretch(const struct lane *lane) {
    return !lane->open.begun && lane->open.sum.ns < hw_load(&hw_daemon()->longest_ns) && !others_have_work(lane);
}

/* Nothing is added to a piece that has begun once the gate is closed; nor to one that is measured, in which the GPU must
 * not wait for work. */
static bool fits(struct lane *lane, const struct hw_cost *cost, uint64_t window) {
    const struct batch *b = &lane->open;
    uint64_t ns = hw_cost_of(cost, window), most = window + window / 8;
    if (!b->gated || b->unknown || (b->works && cost->seen < HW_KNOWN)) return false;
    if ((b->begun || !hw_turn_leased()) && hw_is_begun(b)) return false;
    if (!b->works || b->sum.ns + ns <= most) return true;
    if (!can_stretch(lane)) return false;
    uint64_t left = left_of(lane);
    if (!left) most = 2 * window - 1; /* one group may be longer, if there is no other in flight */
    return left + ns <= most;
}

/* The program may be far ahead and say nothing for long: its books are kept for it, unless it did so just now. */
static bool keep_books(void) {
    if (hw_now() - hw_lanes_looked() < BOOKS_NS || !hw_try_lock()) return false;
    hw_lanes_reap_pieces(hw_now());
    bool waits = false;
    const struct hw_client_page *page = hw_page();
    for (uint32_t i = 0; i < HW_LANES && page; i++) waits |= hw_load(&page->opened[i]) != hw_load(&page->given[i]);
    hw_turn_say_passed();
    if (waits) hw_turn_ask_again(); /* whatever went wrong, nothing is to wait for a turn that nobody knows of */
    hw_unlock();
    return true;
}

/* How fast ticks go, once it is known: measured against the clock over the time since this was first asked. */
static uint32_t tick_rate(void) {
    static uint64_t first_ns, first_ticks;
    static uint32_t rate;
    if (rate) return rate;
    uint64_t now = hw_now(), ticks = hw_ticks();
    if (!first_ns) first_ns = now, first_ticks = ticks;
    if (now - first_ns > RATE_NS) rate = (uint32_t)(((ticks - first_ticks) << 16) / (now - first_ns));
    return rate;
}

/* Others may join the piece while there is no more of it in flight than may be. Once it has begun, what is left of it is
 * counted from then on, and without a lease nothing is added to it; until then nothing of it is done. */
static void lend(struct lane *lane, uint64_t window) {
    const struct batch *b = &lane->open;
    uint32_t rate = tick_rate(), lease = hw_load_acquire(&hw_daemon()->lease);
    uint64_t most = window + window / 8, left = left_of(lane), longest = most;
    if (lane->runs && can_stretch(lane)) longest = hw_load(&hw_daemon()->longest_ns);
    if (b->begun || !rate || b->sum.ns >= longest || (most * rate >> 16) > UINT32_MAX) return;
    if ((lane->runs && !lease) || left >= most) return;
    hw.joined = lane;
    hw.lent = (uint32_t)(longest - b->sum.ns < HW_ROOM_MOST ? longest - b->sum.ns : HW_ROOM_MOST);
    hw.loan++;
    /* Who sees any of these sees that the loan before has ended. */
    hw_store_release(&hw_fast.lease, lease);
    hw_store_release(&hw_fast.daemon, hw_daemon());
    hw_store_release(&hw_fast.rate, rate);
    hw_store_release(&hw_fast.most, (uint32_t)(most * rate >> 16));
    hw_store_release(&hw_fast.until, hw_until_of(hw.loan, hw_ticks() + (left * rate >> 16)));
    hw_store_release(&hw_fast.opened, lane->runs ? NULL : hw_opened_of(b->word));
    hw_store_release(&hw_fast.number, b->seq);
    hw_store_release(&hw_fast.joined, lane->key);
    hw_store_release(&hw_fast.room, hw_room_of(hw.loan, hw.lent));
}

/* The work goes with the piece. Where it is long, or nobody knows how long, it ends that; else the next piece does,
 * which costs the GPU less, and until then its end is a prediction. */
static enum hw_pass add_to_piece(struct lane *lane, struct hw_cost *cost, uint64_t window) {
    struct batch *b = &lane->open;
    uint64_t ns = hw_cost_of(cost, window);
    if (!b->works) b->issued_ns = lane->looked_ns = hw_now();
    b->unknown |= cost->seen < HW_KNOWN;
    if (b->begun) hw_cost_add(&b->sum, cost, ns); /* what took how long is only learned from measured ones */
    else b->sum.ns += ns;
    b->works++;
    uint64_t longest = b->works == 1 ? window : hw_load(&hw_page()->piece_ns);
    hw_store(&hw_page()->piece_ns, ns > longest ? ns : longest);
    lane->added_ns += ns;
    if (lane->added_ns > window / PARTS) left_of(lane);
    if (b->unknown || (ns >= 2 * window && !is_left_alone(b))) return HW_ENDING;
    if (!hw_cost_known(cost->signature, &hw_fast.next_cost)) hw_cost_publish(cost); /* others may have taken its place */
    lend(lane, window);
    return HW_GATED;
}

enum hw_pass hw_piece_pass(const struct hw_lane_api *api, void *key, uint64_t signature) {
    static uint32_t number;
    if (!api->can_gate || !api->can_gate()) return HW_FREE;
    /* Every now and then it is looked whether the daemon lives. */
    bool look = number++ % 16 == 0 || !hw_gate_is_connected(hw_channel());
    if (look && !hw.asking && !hw_gate_reach(hw_channel(), hw_now())) return HW_FREE;
    uint64_t window = hw_load(&hw_daemon()->window_ns);
    if (!window && !(hw_load(&hw_page()->busy) && hw_load(&hw_page()->gated))) return HW_FREE;
    if (!window) window = hw_load(&hw_daemon()->longest_ns);
    if (!window) return HW_FREE;
    if (!api->may_mark(key) || !hw_watchdog_start(hw_channel(), keep_books) || !begin_pieces()) return HW_FREE;
    struct lane *lane = hw_lane_of(api, key);
    if (!lane) return HW_FREE;
    end_other_pieces(lane);
    struct hw_cost *cost = hw_cost_of_work(signature);
    if (!fits(lane, cost, window)) {
        hw_lanes_measure();
        hw_lanes_reap(hw_now());
        wait_for_pieces(lane);
        if (!hw_page()) return HW_FREE;
        if (begin_piece(lane, cost->seen < HW_KNOWN || is_sampled(lane))) hw_turn_ask_again();
        else if (!lane->open.gated) return HW_FREE;
    }
    return add_to_piece(lane, cost, window);
}
