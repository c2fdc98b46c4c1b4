/* Where two sides of a page, or two threads of a program, may cross: the interposer's own code (gate.c, turn.c, pieces.c,
 * lanes.c, as they are) beside the daemon's accesses, which are Python's, in the order of live/wire/pages.py.
 *
 *     stories NAME     how many orders there were; 1, and the order, if something does not hold in one of them */
#define _GNU_SOURCE
#include "explore.h"
#include "connection.h"
#include "lanes.h"
#include "survey.h"
#include "watchdog.h"
#include <stdio.h>
#include <string.h>

#define WINDOW 200000
#define KIND 77

static struct hw_daemon_page daemon_page;
static struct hw_client_page page;
static struct hw_channel channel;
static int submitted, released;

/* ---- what stands in the place of the rest of the interposer -------------------------------------------------- */

bool hw_gate_enabled(void) { return true; }
bool hw_connected(struct hw_channel *c) { return c != NULL; }
bool hw_is_ours(const struct hw_channel *c) { return c != NULL; }
void hw_forget(struct hw_channel *c) { (void)c; }
bool hw_wait_readable(int fd, int timeout_ms) { return fd < 0 && timeout_ms < 0; }
uint32_t hw_survey_unknown(void) { return 0; }
bool hw_watchdog_start(struct hw_channel *c, bool (*books)(void)) { return c && books; }
void hw_watchdog_gone(void) {}
struct hw_channel *hw_channel_take(void *context) { return context ? &channel : NULL; }

bool hw_say(struct hw_channel *c, const struct hw_message *m) {
    (void)c;
    model_fence(); /* a system call that takes locks */
    submitted += m->type == HW_SUBMIT;
    released += m->type == HW_RELEASE;
    return true;
}

static bool mark(void *lane, hw_u32 *word, uint32_t value, void **event) {
    (void)lane, (void)event;
    hw_turn_written(word, value);
    return true;
}
static bool yes(void) { return true; }
static bool always(void *lane) { return lane != NULL; }
static bool never(void *lane) { return lane == NULL; }
static void *no_time;
static void time_of(void *lane, void **event) { (void)lane, *event = no_time; }
static uint64_t between(void *begun, void *ended) { return begun == ended; }
static void forget(void *event) { (void)event; }

static bool gate(void *lane, const struct hw_piece *piece) {
    (void)lane;
    if (piece->closed) hw_turn_written(piece->closed, piece->before);
    return true;
}

static const struct hw_lane_api waits_on_cpu = {
    .mark = mark, .event_done = always, .forget = forget, .lane_done = always, .may_mark = always};
static const struct hw_lane_api waits_on_gpu = {
    .mark = mark, .event_done = always, .forget = forget, .lane_done = always, .may_mark = always, .can_gate = yes,
    .gate = gate, .joins = never, .time = time_of, .between = between, .forget_time = forget};
static char stream;

/* ---- the daemon ----------------------------------------------------------------------------------------------- */

/* A word that the daemon writes, then a barrier: what is read after it is newer. */
#ifndef NO_FENCE /* a mistake that must be found */
#define SET(word, value) (hw_store(word, value), model_fence())
#else
#define SET(word, value) hw_store(word, value)
#endif

static bool saw_busy, saw_unmarked, saw_pending;
static uint32_t saw_asks;

static void takes_the_lease(void) {
    SET(&daemon_page.lease, 0);
    saw_busy = hw_load(&page.busy);
    saw_unmarked = hw_load(&page.unmarked);
}

static void wants_the_turn(void) {
    SET(&daemon_page.wanted, HW_ITS_END);
    saw_busy = hw_load(&page.busy);
}

static void polls_no_longer(void) {
    SET(&daemon_page.polled, 0);
    saw_asks = hw_load(&page.asks);
}

/* What waits on the GPU asks for the next turn: Arbiter._part. */
static void parts(void) {
    SET(&daemon_page.lease, 0);
    SET(&daemon_page.waits, 0);
    saw_pending = hw_load(&page.given[0]) != hw_load(&page.opened[0]);
}

/* ---- stories -------------------------------------------------------------------------------------------------- */

static bool went;

static void connect_channel(void) {
    hw_store(&channel.daemon, &daemon_page);
    hw_store(&channel.page, &page);
    channel.turns = true;
    hw_store(&daemon_page.lease, 1);
    hw_store(&daemon_page.heartbeat_ns, 1ull << 62);
    hw_store(&daemon_page.tell_after, 1);
    hw_store(&hw.made, &channel);
}

static void takes_lease(void) { went = hw_gate_take_lease(&channel); }

static void goes_on_in_its_turn(void) {
    connect_channel();
    hw_store(&page.busy, 1); /* all that went has a mark behind it */
}

static void one_goes(void) {
    expect(!(went && !saw_busy), "it went though the daemon saw that it is not busy");
    expect(!(went && !saw_unmarked), "it went though the daemon saw a mark behind all of its work");
}

static void in_a_turn(void) {
    connect_channel();
    hw_turn_pass(&waits_on_cpu, &stream, KIND);
}

static void rests(void) { hw_turn_synced(&stream, true); }

static void end_is_heard(void) {
    expect(!saw_busy || released, "the daemon saw that it is busy, and is not told that it rests");
}

static void no_lease(void) {
    connect_channel();
    hw_store(&daemon_page.lease, 0);
    hw_store(&daemon_page.polled, 1);
}

static void asks(void) { hw_gate_announce(&channel); }

static void asking_is_heard(void) { expect(saw_asks || submitted, "it asked, and nobody knows"); }

/* A kind of work that is known, so that others may join its piece. */
static void learn(void) {
    struct hw_cost *cost = hw_cost_find(KIND);
    cost->seen = HW_KNOWN;
    cost->ns = 10000;
    hw_cost_publish(cost);
}

static void piece_was_opened(void) {
    connect_channel();
    hw_store(&daemon_page.window_ns, WINDOW);
    hw_store(&daemon_page.longest_ns, WINDOW);
    hw_store(&daemon_page.waits, 1);
    learn();
    hw_turn_pass(&waits_on_gpu, &stream, KIND);
    hw_turn_arrived();
    hw_turn_waits(&stream, false);
    hw_store(&page.opened[0], hw_load(&page.given[0]));
    hw_store(&daemon_page.lease, 0); /* the turn was taken back, and what ran of it is done */
}

static void gives_a_piece(void) { hw_turn_pass(&waits_on_gpu, &stream, KIND); }

static void piece_is_known(void) { expect(saw_pending || submitted, "a piece waits, and nobody knows"); }

/* Work of others joins a piece without the lock. */
static hw_u32 on_its_way;
static int joined;
static bool settled;
static uint64_t before_ns;

static void piece_is_lent(void) {
    connect_channel();
    hw_store(&daemon_page.window_ns, WINDOW);
    hw_store(&daemon_page.longest_ns, WINDOW);
    learn();
    struct timespec now;
    for (int i = 0; i < 30000; i++) model_clock(0, &now); /* until it is known how fast ticks go */
    hw_turn_pass(&waits_on_gpu, &stream, KIND);
    hw_turn_arrived();
    for (int i = 0; i < 30000; i++) {
        model_clock(0, &now);
        for (int j = 0; j < 1000; j += 500) model_ticks();
    }
    hw_turn_pass(&waits_on_gpu, &stream, KIND);
    hw_turn_arrived();
    hw_here.known = true;
    expect(hw.lent, "the story begins without a loan");
    before_ns = hw.lanes[0].open.sum.ns;
}

static void joins(void) {
    if (!hw_turn_join(&stream, KIND)) return;
    joined++;
    hw_add(&on_its_way, 1);
    expect(!settled, "work joined a piece that was settled");
    hw_add(&on_its_way, -1);
    hw_turn_joined();
}

static void ends_the_loan(void) {
    hw_lock();
    settled = !hw_lane_is_sent_to(&hw.lanes[0]);
    expect(!(settled && hw_load(&on_its_way)), "work that joined is on its way, and nobody waits for it");
    hw_unlock();
}

/* The loan ends, and there is another of the same piece. */
static void lends_again(void) {
    hw_turn_pass(&waits_on_gpu, &stream, KIND);
    hw_turn_arrived();
    went = true;
}

static void all_is_counted(void) {
    hw_lock();
    uint64_t more_ns = hw.lanes[0].open.sum.ns - before_ns;
    expect(more_ns == 10000u * (unsigned)(joined + went), "what joined is not what was counted");
    hw_unlock();
}

static const struct story stories[] = {
    {"lease", connect_channel, {takes_lease, takes_the_lease}, one_goes, true},
    {"turn", goes_on_in_its_turn, {takes_lease, takes_the_lease}, one_goes, true},
    {"rest", in_a_turn, {rests, wants_the_turn}, end_is_heard, true},
    {"revoke", in_a_turn, {rests, takes_the_lease}, end_is_heard, true},
    {"asks", no_lease, {asks, polls_no_longer}, asking_is_heard, true},
    {"piece", piece_was_opened, {gives_a_piece, parts}, piece_is_known, true},
    {"join", piece_is_lent, {joins, ends_the_loan}, all_is_counted, false},
    {"joins", piece_is_lent, {joins, joins}, all_is_counted, false},
    {"three", piece_is_lent, {joins, joins, ends_the_loan}, all_is_counted, false},
    {"loans", piece_is_lent, {joins, lends_again}, all_is_counted, false},
};

int main(int count, char **words) {
    for (unsigned i = 0; i < sizeof stories / sizeof *stories; i++)
        if (count == 2 && !strcmp(words[1], stories[i].name)) {
            printf("%lu\n", explore(&stories[i]));
            return 0;
        }
    fprintf(stderr, "stories NAME\n");
    return 2;
}
