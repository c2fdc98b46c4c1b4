#define _GNU_SOURCE
#include "jobs.h"
#include "lanes.h"
#include "own.h"
#include "watchdog.h"
#include <sys/mman.h>

/* A window is marked in so many pieces, so that room in it is seen in time. */
#define PIECES 4
/* A call that took longer was interrupted: when its work began is not known. */
#define CALL_NS 50000u
#define ASK_AGAIN_NS 1000000u
#define ALL ((void *)-1)
/* Who asks again after so long did not wait meanwhile. */
#define POLL_NS 50000u

struct hw_near hw_nears[HW_DEVICES] HW_NEAR(128);
static int jobs;  /* the program says itself when its job is over */
static bool job; /* of such a job not everything is told yet */
static uint64_t job_ns, job_deadline_ns; /* when that began, and how long it may take */
_Thread_local struct hw_here hw_here;
static pthread_key_t ends; /* of threads, */
static bool hears;         /* if they are heard of */

bool hw_turn_inside(void) { return hw_here.inside; }

uint64_t hw_turn_window(void) {
    const struct hw_daemon_page *daemon = hw_gate_enabled() && hw_channel() ? hw_daemon() : NULL;
    return daemon ? hw_load(&daemon->window_ns) : 0;
}

uint32_t hw_turn_share(void) {
    bool lives = hw_channel() && hw_gate_is_connected(hw_channel());
    return lives ? hw_turn_told() : 0;
}

void hw_turn_confined(uint32_t permille) {
    struct hw_client_page *page = hw_channel() ? hw_page() : NULL;
    if (!page) return;
    hw_add(&page->confined, 1);
    hw_store(&page->share, permille);
}

void hw_turn_whole(void) {
    struct hw_client_page *page = hw_channel() ? hw_page() : NULL;
    if (page) hw_add(&page->whole, 1);
}

void hw_turn_unconfined(uint32_t why) {
    struct hw_client_page *page = hw_channel() ? hw_page() : NULL;
    if (page) hw_store(&page->unconfined, why);
}

/* In code of ours, with the lock. */
static struct hw_own begin(void) {
    struct hw_own own = hw_own_begin();
    hw_here.inside++;
    hw_lock();
    return own;
}

static void end(const struct hw_own *own) {
    hw_unlock();
    hw_here.inside--;
    hw_own_end(own);
}

/* ---- GPUs --------------------------------------------------------------------------------------- */

static bool is_used(uint32_t device) { return device < HW_DEVICES && hw_load_acquire(&hw_all[device]); }

/* For every GPU that the program uses; this thread's own is what it was, after that. */
#define EACH_DEVICE \
    for (uint32_t own_device = hw_here.device, next = 0; \
         (hw_here.device = next < HW_DEVICES ? next : own_device), next++ < HW_DEVICES;) \
        if (is_used(hw_here.device))

#define LOCKED __attribute__((cleanup(end), unused)) struct hw_own own = begin()

/* ---- turns -------------------------------------------------------------------------------------- */

/* The daemon may look at the page all the time, and a word that two CPUs use is slow: what passes is counted apart. */
void hw_turn_say_passed(void) {
    struct hw_client_page *page = hw_page();
    if (!hw_load(&hw_fast.unsaid) || !page) return;
    hw_count(&page->passed, hw_load(&hw_fast.unsaid));
    hw_store(&hw_fast.unsaid, 0);
}

/* Nothing of the program is on the GPU: the turn may go to somebody else. */
static void let_go(bool last) {
    struct hw_client_page *page = hw_page();
    hw.early = false;
    hw_store(&hw_fast.lane, NULL);
    if (!page) return;
    hw_store(&page->last_ns, hw.finished_ns);
    hw_store(&page->gated, 0);
    hw_store_full(&page->busy, 0);
    if (hw.asking) return; /* by another thread: what it asks for must not be given back */
    bool wanted = hw_load_full(&hw_daemon()->wanted) && (!last || hw_job_tells());
    if (wanted || !hw_load_full(&hw_daemon()->lease))
        last ? hw_gate_rest(hw_channel()) : (void)hw_gate_tell(hw_channel(), HW_RELEASE, false);
}

/* The turn was taken back: what is in flight is waited for, then it is given. */
void hw_turn_drain(void) {
    hw_lanes_mark();
    uint64_t since = hw_now(), before = hw.ended;
    for (uint64_t now = since; hw_lanes_in_flight(); now = hw_now()) {
        hw_lanes_reap(now);
        if (hw_lanes_in_flight() && hw_turn_is_stuck(&since, &before, now)) break;
        if (hw_lanes_in_flight()) hw_turn_breathe(since, now);
        if (!hw_page()) return;
    }
    if (hw_is_busy(hw_channel()) && !hw_turn_leased()) let_go(false);
}

/* A turn that began with the asking goes on until the daemon has looked at it: then there is a lease, or
 * somebody more important was first. It clears `at_once` after it has given the lease. */
static bool is_early(void) {
    hw.early = hw.early && hw_load_acquire(&hw_daemon()->at_once);
    return hw.early;
}

/* Another thread asks: the lease will show, or there will be nobody to ask. Until then the channel is its own. */
static bool follow(void) {
    while (hw.asking) {
        if (hw_gate_take_lease(hw_channel())) return true;
        hw_turn_nap(50000);
    }
    return false;
}

/* When the gate closes, the daemon asks again for those who have pieces waiting; for a piece that came just after,
 * it must be told. */
void hw_turn_ask_again(void) {
    if (hw_turn_leased() || hw.asking || hw_load_full(&hw_daemon()->waits)) return;
    uint64_t now = hw_now();
    if (now - hw.asked_ns < ASK_AGAIN_NS) return;
    hw.asked_ns = now;
    hw_gate_announce(hw_channel());
}

/* A thread that asked was cancelled. */
static void cancelled(void *unused) {
    (void)unused;
    hw_here.inside = 0;
    hw_lock();
    hw.asking = false;
    hw_unlock();
}

/* With the lock held but while it waits. */
static bool ask(void) {
    bool granted = false;
    hw.asking = true;
    hw_unlock();
    pthread_cleanup_push(cancelled, NULL);
    granted = hw_gate_ask(hw_channel());
    pthread_cleanup_pop(0);
    hw_lock();
    hw.asking = false;
    return granted;
}

/* Waits for the turn, with the lock held but while it waits. */
static bool begin_turn(void) {
    for (;;) {
        if (follow()) return true;
        if (!hw_gate_reach(hw_channel(), hw_now())) return false;
        if (is_early() || hw_gate_take_lease(hw_channel())) return true;
        if (hw_is_busy(hw_channel()) && hw_load(&hw_page()->gated)) { /* it has asked already */
            hw_turn_ask_again();
            hw_turn_nap(50000);
            continue;
        }
        if (hw_is_busy(hw_channel())) {
            hw_turn_drain();
            continue;
        }
        if (hw_load_acquire(&hw_daemon()->at_once)) {
            hw_store_full(&hw_page()->busy, 1);
            return hw.early = hw_gate_announce(hw_channel());
        }
        if (!ask()) return false;
    }
}

/* Predictions are no better than an eighth, so neither is the window. */
static void wait_for_room(uint64_t cost, uint64_t window) {
    uint64_t since = hw_now(), before = hw.ended;
    window += cost < window / 4 ? cost / 2 : window / 8;
    for (uint64_t now = since; hw.flight_ns && hw.flight_ns + cost > window && hw_turn_leased(); now = hw_now()) {
        hw_lanes_mark();
        if (!hw_lanes_in_flight()) return; /* nothing can be marked now */
        hw_lanes_reap(now);
        if (!hw.flight_ns || hw.flight_ns + cost <= window) return;
        if (hw_turn_is_stuck(&since, &before, now)) {
            if (hw_page()) hw_count(&hw_page()->implicit, 1);
            return;
        }
        hw_turn_breathe(since, now);
    }
}

/* The thread ends, perhaps in the middle of a call of the driver. */
static void ended(void *unused) {
    (void)unused;
    hw_here.inside = 0;
    hw_here.known = false;
    hw_turn_arrived();
    if (hw_here.joining) hw_turn_joined();
    if (hw_here.waiting) hw_turn_waiting(-hw_here.waiting);
}

__attribute__((constructor)) static void hear_of_ends(void) { hears = !pthread_key_create(&ends, ended); }

static void get_to_know_thread(void) { hw_here.known = hears && !pthread_setspecific(ends, &hw_here); }

/* The first GPU's is there from the start. What stands in a page is only allocated for those that are used. */
void hw_turn_device(uint32_t device) {
    if (hw_here.inside) return;
    if (device >= HW_DEVICES) device = HW_DEVICES - 1;
    if (!is_used(device)) {
        hw_here.device = 0;
        LOCKED;
        void *made = is_used(device) ? NULL
                                     : mmap(NULL, sizeof hw, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED) return; /* it goes with the first GPU's */
        if (made) {
            ((struct hw_turns *)made)->every = 1;
            hw_store_release(&hw_all[device], made);
            hw_here.device = device;
            if (jobs) hw_job_begin(job_ns, job_deadline_ns);
        }
    }
    hw_here.device = device;
}

static void make_channel(const struct hw_lane_api *api) {
    static char keys[HW_DEVICES];
    struct hw_channel *made = hw_channel_take(&keys[hw_here.device]);
    if (!made) return;
    made->turns = true;
    if (api->identify) api->identify(made);
    hw_store_release(&hw.made, made);
}

static void in_child(void) {
    hw_lock_anew();
    hw_here.on_its_way = NULL;
    hw_watchdog_gone();
    EACH_DEVICE {
        hw_lanes_forget();
        hw_job_forget();
        hw.asking = hw.early = false;
    }
}

static enum hw_pass pass_slowly(const struct hw_lane_api *api, void *key, uint64_t signature) {
    static bool forks;
    enum hw_pass pass = HW_FREE;
    if (!hw_channel()) make_channel(api);
    if (!hw_channel()) return pass;
    if (!forks) forks = !pthread_atfork(NULL, NULL, in_child);
    if (!hw_here.known) get_to_know_thread();
    bool leased = hw_page() && hw_turn_leased();
    uint64_t called = leased && hw_job_is_on() ? 0 : hw_now();
    if (called) hw_job_works(called);
    enum hw_pass piece = hw_piece_pass(api, key, signature);
    pass = piece;
    for (bool again = false; piece == HW_FREE && begin_turn(); again = true) {
        uint64_t window = hw_load(&hw_daemon()->window_ns);
        pass = window ? HW_WATCHED : HW_FAST;
        if (window) wait_for_room(hw_cost_of(hw_cost_find(signature), window), window);
        /* It may have been taken back while there was no room, but not for ever: each grant lets something go. */
        if (hw.early || !window || hw_gate_take_lease(hw_channel()) || again) break;
        pass = HW_FREE;
    }
    if (called) hw_job_works(called); /* the page may be a new one */
    if (called && !leased) hw_job_held(hw_now() - called);
    if (hw_page()) {
        if (pass == HW_FREE) hw_count(&hw_page()->free_groups, 1);
        else hw_count(&hw_fast.unsaid, 1);
        if (piece == HW_FREE) hw_turn_say_passed();
    }
    struct lane *lane = hw_lane_of(api, key);
    if (lane) lane->dirty = true;
    if (lane && (pass == HW_FREE || pass == HW_FAST)) lane->loose = true;
    hw_store(&hw_fast.lane, NULL);
    if (hw_page()) hw_store(&hw_fast.daemon, hw_daemon());
    if (lane && pass == HW_FAST && !hw_load(&hw_page()->gated)) hw_store_release(&hw_fast.lane, key);
    if (!hw.turn_ns) hw.turn_ns = hw_now();
    if (lane && pass >= HW_GATED) {
        hw_add(&lane->passing, 1);
        hw_here.on_its_way = lane;
    }
    return pass;
}

enum hw_pass hw_turn_pass(const struct hw_lane_api *api, void *key, uint64_t signature) {
    if (hw_here.inside || !hw_gate_enabled()) return HW_FREE;
    if (hw_turn_is_fast(key)) return HW_FAST;
    LOCKED;
    enum hw_pass pass = pass_slowly(api, key, signature);
    if (hw_channel() && hw_page() && pass < HW_GATED) hw_store(&hw_page()->unmarked, 1);
    if (pass == HW_WATCHED) hw_here.called_ns = hw_now();
    return pass;
}

static void watch_passed(struct lane *lane, uint64_t signature) {
    uint64_t window = hw_load(&hw_daemon()->window_ns), now = hw_now();
    struct hw_cost *c = hw_cost_of_work(signature);
    struct batch *b = &lane->open;
    uint64_t cost = hw_cost_of(c, window);
    if (b->gated) return;
    if (!b->works) b->issued_ns = now;
    b->doubtful |= now - hw_here.called_ns > CALL_NS;
    hw_cost_add(&b->sum, c, cost);
    b->works++;
    hw.flight_ns += cost;
    if (c->seen < HW_KNOWN || hw_launch_is_wanted(c) || b->sum.parts == HW_PARTS || b->sum.ns * PIECES >= window) hw_lane_mark(lane);
    hw_lanes_show();
}

void hw_turn_arrived(void) {
    if (hw_here.on_its_way) hw_add_release(&hw_here.on_its_way->passing, -1);
    hw_here.on_its_way = NULL;
}

void hw_turn_passed(const struct hw_lane_api *api, void *key, uint64_t signature, enum hw_pass pass) {
    if (pass != HW_WATCHED && pass != HW_ENDING) return;
    LOCKED;
    struct lane *lane = hw_page() && hw_daemon() ? hw_lane_of(api, key) : NULL;
    if (lane && pass == HW_ENDING) hw_piece_end(lane);
    else if (lane) watch_passed(lane, signature);
}

/* All work was waited for: a pause begins, and perhaps the job is over, and with it the turn. */
static void rest(uint64_t now) {
    struct hw_client_page *page = hw_page();
    const struct hw_daemon_page *daemon = hw_daemon();
    if (page && daemon && !hw_load(&daemon->window_ns) && !hw_load(&page->gated) && hw.turn_ns) {
        uint64_t start = hw.turn_ns > hw.finished_ns ? hw.turn_ns : hw.finished_ns;
        if (now > start) hw_count(&page->used_ns, now - start);
    }
    if (page) hw_count(&page->end_marks, 1); /* no mark says anything of the next job yet */
    hw_job_pauses(now);
    hw.finished_ns = now;
    hw.turn_ns = hw.flight_ns = 0;
    if (page) hw_store(&page->unmarked, 0);
    let_go(true);
}

/* What was waited for: a lane by its name, or every one; or there are none any more. */
enum extent { NAMED, EVERY, GONE };

static void settle(void *key, enum extent extent) {
    if (!hw_channel() || hw_here.inside) return;
    LOCKED;
    uint64_t now = hw_now();
    bool dirty = false, was = false;
    for (uint32_t i = 0; i < hw.used; i++) {
        struct lane *lane = &hw.lanes[i];
        if (!lane->key) continue;
        was |= lane->dirty;
        bool meant = extent != NAMED && (!lane->api->is_meant || lane->api->is_meant(lane->key));
        bool waited_for = lane->key == key || (meant && extent == EVERY);
        if ((meant && extent == GONE) || (waited_for && !hw_lane_has_pieces(lane))) hw_lane_is_done(lane, now);
        else if (lane->dirty && !lane->gone && !hw_lane_is_sent_to(lane) &&
                 lane->api->may_mark(lane->key) && lane->api->lane_done(lane->key))
            hw_lane_is_done(lane, now);
        dirty |= lane->dirty;
    }
    hw_lanes_book(now, false);
    hw_turn_say_passed();
    hw_store(&hw_fast.lane, NULL);
    if (was && !dirty && !job) rest(now);
    else if (hw_page()) hw_lanes_show();
}

void hw_turn_synced(void *lane, bool all) { settle(lane, all ? EVERY : NAMED); }

/* The program is about to wait for what it has sent. Where others may go on beside its last copies and the time until it
 * sees that all is done, a mark tells the daemon before. Of several lanes none tells it of all. */
static void mark_end(void) {
    struct hw_client_page *page = hw_page();
    if (!page || job || hw_load(&page->gated)) return;
    uint64_t passed = hw_load(&page->passed) + hw_load(&hw_fast.unsaid);
    if (passed == hw.end_marked) return;
    hw.end_marked = passed;
    hw_count(&page->end_marks, 1);
    struct lane *only = NULL;
    for (uint32_t i = 0; i < hw.used; i++) {
        if (!hw.lanes[i].key || !hw.lanes[i].dirty) continue;
        if (only) return;
        only = &hw.lanes[i];
    }
    void *event = NULL;
    if (!only || only->gone || !only->api->can_gate || !only->api->can_gate() || !only->api->may_mark(only->key)) return;
    if (only->api->mark(only->key, &page->end_marked, hw_load(&page->end_marks), &event) && event) only->api->forget(event);
}

static void waits_on_device(int change, int threads, uint64_t waited_ns) {
    const struct hw_daemon_page *daemon = hw_channel() ? hw_daemon() : NULL;
    if (change > 0 && daemon && hw_load(&daemon->wanted) == HW_ITS_MARK) {
        LOCKED;
        mark_end();
    }
    struct hw_client_page *page = hw_channel() ? hw_page() : NULL;
    if (!page) return;
    hw_store(&page->waiting, (uint32_t)threads);
    if (waited_ns) hw_job_waited(waited_ns);
}

/* What a thread waits for may be on any GPU. */
void hw_turn_waiting(int change) {
    static hw_int threads;
    static hw_u64 since;
    if (!hw_here.known && hw_channel()) get_to_know_thread();
    hw_here.waiting += change;
    int now = hw_add(&threads, change);
    uint64_t waited_ns = 0;
    if (hw_here.inside) return;
    if (change > 0 && now == 1) hw_store(&since, hw_now());
    if (change < 0 && now == 0) waited_ns = hw_now() - hw_load(&since);
    EACH_DEVICE waits_on_device(change, now, waited_ns);
}

/* A program that asks again and again whether its work is done waits for it. */
void hw_turn_polls(void) {
    static hw_u64 polled;
    if (hw_here.inside || !hw_channel()) return;
    uint64_t now = hw_now(), before = hw_exchange_full(&polled, now);
    if (now - before < POLL_NS) hw_job_waited(now - before);
}

static void end_pieces(void *key, void (*end_piece)(struct lane *)) {
    if (!hw_channel() || hw_here.inside || !hw_page() || !hw_load(&hw_page()->gated)) return;
    LOCKED;
    for (uint32_t i = 0; i < hw.used; i++)
        if (hw.lanes[i].key && (key == ALL || hw.lanes[i].key == key)) end_piece(&hw.lanes[i]);
}

void hw_turn_waits(void *key, bool all) { end_pieces(all ? ALL : key, hw_piece_end_before_wait); }

void hw_turn_joins(void *key) { end_pieces(key, hw_piece_end); }

static void look(void) {
    const struct hw_daemon_page *daemon = hw_channel() ? hw_daemon() : NULL;
    /* Only who waits for this turn, or a deadline, makes it worth looking. */
    if (daemon && (hw_load(&daemon->wanted) || hw_load(&daemon->deadline_ns) || !hw_load(&daemon->lease)))
        settle(ALL, NAMED);
    if (!daemon || hw_here.inside || !hw_load(&hw_fast.unsaid)) return;
    LOCKED;
    hw_turn_say_passed();
}

void hw_turn_look(void) { EACH_DEVICE look(); }

void hw_turn_failed(void) { EACH_DEVICE settle(ALL, NAMED); }

/* Nobody can ask the stream any more: a mark behind its last work will tell. */
static void part_with(void *key) {
    LOCKED;
    hw_lanes_reap(hw_now());
    for (uint32_t i = 0; i < hw.used; i++) {
        struct lane *lane = &hw.lanes[i];
        if (!key || lane->key != key) continue;
        hw_lane_mark(lane);
        hw_piece_end(lane);
        if (!lane->count) hw_lane_is_done(lane, hw_now());
        lane->gone = lane->count;
        lane->key = lane->gone ? &lane->open : NULL; /* what no new stream is called */
    }
    hw_lanes_book(hw_now(), false);
}

void hw_turn_end_lane(void *key, bool all) {
    if (!hw_channel() || hw_here.inside) return;
    if (!all) part_with(key);
    settle(ALL, all ? GONE : NAMED);
    LOCKED;
    for (uint32_t i = 0; all && i < hw.used; i++) {
        struct lane *lane = &hw.lanes[i];
        if (lane->key && (!lane->api->is_meant || lane->api->is_meant(lane->key))) lane->key = NULL;
    }
    if (all && hw_page()) hw_store(&hw_page()->open, 1); /* nothing may wait for its turn while its context goes */
}

/* ---- what a program may say itself --------------------------------------------------------------------- */

#define EXPORT __attribute__((visibility("default")))
EXPORT void headway_job_begin(uint64_t deadline_ns);
EXPORT void headway_job_end(void);

/* Until the job ends, waiting for the GPU does not end the turn. Jobs may stand in jobs: the outermost counts. */
void headway_job_begin(uint64_t deadline_ns) {
    LOCKED;
    if (!jobs++) {
        job = true;
        job_ns = hw_now();
        job_deadline_ns = deadline_ns;
        EACH_DEVICE hw_job_begin(job_ns, deadline_ns);
    }
}

static bool is_over(void) {
    LOCKED;
    return jobs > 0 && !--jobs;
}

static void end_job(bool count) {
    settle(ALL, NAMED);
    LOCKED;
    bool dirty = false;
    for (uint32_t i = 0; i < hw.used; i++) dirty |= hw.lanes[i].key && hw.lanes[i].dirty;
    bool worked = hw_job_end(hw_now(), count);
    if (hw_channel() && worked && !dirty) rest(hw_now());
}

void headway_job_end(void) {
    if (!is_over()) return;
    bool worked = false;
    EACH_DEVICE worked |= hw_job_worked();
    EACH_DEVICE end_job(!worked);
    job = false;
}
