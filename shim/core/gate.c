#define _GNU_SOURCE
#include "connection.h"
#ifdef HW_PREDICT
#include "rows.h"
#endif
#include "own.h"
#include "survey.h"
#include <sys/socket.h>
#include <time.h>

/* A daemon that has shown no sign of life for this long is taken for stopped. */
#define STALE_NS 400000000ull
/* How often a waiting program looks whether it is. */
#define LOOK_MS 50
/* How long a turn is waited for without sleeping: about what a wake-up takes. */
#define SPIN_NS 40000ull

_Thread_local struct hw_outside hw_outside;

uint64_t hw_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static bool tell(struct hw_channel *c, uint32_t type, bool frame) {
    struct hw_message m = {
        .type = type, .seq = c->seq, .signature = c->signature, .submit_ns = c->submit_ns,
        .start_ns = c->start_ns, .finish_ns = c->finish_ns, .units = c->units, .frame = frame};
    if (hw_load(&c->fd) < 0) return false; /* and a new try is not put off */
    return hw_say(c, &m);
}

bool hw_gate_tell(struct hw_channel *c, uint32_t type, bool last) { return tell(c, type, last); }

static bool is_stale(const struct hw_channel *c, uint64_t now) {
    uint64_t beat = hw_load(&hw_daemon_of(c)->heartbeat_ns);
    return now > beat && now - beat > STALE_NS;
}

/* Under a lease: say that the GPU is in use, then look again. The daemon does it the other way round
 * (take the lease, then look whether the GPU is in use), so one of the two notices the other. In a turn it also looks
 * whether all work has a mark behind it: what is about to go has none. */
static bool take_lease(struct hw_channel *c) {
    const struct hw_daemon_page *daemon = hw_daemon_of(c);
    struct hw_client_page *page = hw_page_of(c);
    if (!hw_load_acquire(&daemon->lease)) return false;
    if (c->turns && !hw_load(&page->gated) && !hw_load(&page->unmarked)) hw_store_full(&page->unmarked, 1);
    if (!hw_load(&page->busy)) hw_store_full(&page->busy, 1);
    return hw_load_full(&daemon->lease);
}

static void publish(struct hw_channel *c) {
    struct hw_client_page *page = hw_page_of(c);
    uint32_t n = c->methods < HW_MATRIX ? c->methods : HW_MATRIX;
    for (uint32_t i = 0; i < n; i++) {
        hw_store(&page->matrix[i].method, c->matrix[i].method);
        hw_store(&page->matrix[i].count, c->matrix[i].count);
        hw_store(&page->matrix[i].size, c->matrix[i].size);
    }
    hw_store(&page->methods, n);
#ifdef HW_PREDICT
    if (c->features) hw_features_publish(c->features, page);
#endif
}

bool hw_gate_owes(const struct hw_channel *c) {
    return hw_is_busy(c) && !hw_load_acquire(&hw_daemon_of(c)->lease);
}

void hw_gate_settle(struct hw_channel *c) {
    if (!hw_is_busy(c)) return;
    c->leased = false;
    hw_store_full(&hw_page_of(c)->busy, 0);
    if (!hw_load_full(&hw_daemon_of(c)->lease)) tell(c, HW_RELEASE, false);
}

/* A turn's grant is a lease: it shows in the page before the message has woken anybody. */
static bool spin(const struct hw_channel *c) {
    for (uint64_t end = hw_now() + SPIN_NS; hw_now() < end;)
        for (int i = 0; i < 16; i++)
            if (hw_load_acquire(&hw_daemon_of(c)->lease)) return true;
    return false;
}

/* Grants that were seen in the page before they were read. */
static void read_old_grants(const struct hw_channel *c) {
    struct hw_message old;
    while (hw_is_ours(c) && recv(hw_load(&c->fd), &old, sizeof old, MSG_DONTWAIT) == sizeof old) {}
}

static bool wait_for_message(struct hw_channel *c) {
    hw_own_wait();
    bool ready = hw_wait_readable(hw_load(&c->fd), LOOK_MS);
    hw_own_waited();
    return ready;
}

/* Whether the group may go by the daemon's word; false: that one is gone or stopped, so go on without it. */
static bool wait_for_grant(struct hw_channel *c) {
    if (c->turns && spin(c)) return true;
    for (;;) {
        if (!wait_for_message(c)) {
            if (!is_stale(c, hw_now())) continue;
            tell(c, HW_WITHDRAW, false);
            return false;
        }
        if (!hw_is_ours(c)) {
            hw_forget(c);
            return false;
        }
        struct hw_message answer;
        ssize_t n = recv(hw_load(&c->fd), &answer, sizeof answer, MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n != sizeof answer) {
            hw_forget(c);
            return false;
        }
        if (answer.type == HW_GRANT && answer.seq == c->seq) return true;
    }
}

static void leave(void *channel) { tell(channel, HW_WITHDRAW, false); }

/* Asks the daemon and waits for its answer. A thread that is cancelled meanwhile wants it no more. */
static bool ask(struct hw_channel *c) {
    bool granted = false;
    c->seq++;
    publish(c);
    if (c->turns) read_old_grants(c);
    if (!tell(c, HW_SUBMIT, false)) return false;
    pthread_cleanup_push(leave, c);
    granted = wait_for_grant(c);
    pthread_cleanup_pop(0);
    return granted;
}

/* A daemon without a sign of life is stopped, or dead and another one may have come. */
static bool still_there(struct hw_channel *c) {
    char byte;
    if (!is_stale(c, c->submit_ns)) return true;
    if (c->turns) read_old_grants(c); /* what it said while it lived would hide its end */
    if (!hw_is_ours(c) || recv(hw_load(&c->fd), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0) {
        hw_forget(c);
        c->retry_ns = 0;
        return hw_connected(c);
    }
    return false;
}

/* A frame is a job. The daemon looks at the records of the last ones now and then. */
static void end_frame(struct hw_channel *c, uint64_t now_ns) {
    struct hw_client_page *page = hw_page_of(c);
    if (page && c->frame_ns) {
        uint32_t jobs = hw_load(&page->jobs);
        struct hw_job *job = &page->job[jobs % HW_JOBS];
        hw_store(&job->begun_ns, c->frame_ns);
        hw_store(&job->ended_ns, now_ns);
        hw_store(&job->deadline_ns, 0);
        hw_store(&job->waited_ns, 0);
        hw_store(&job->held_ns, c->frame_held_ns < UINT32_MAX ? (uint32_t)c->frame_held_ns : UINT32_MAX);
        hw_store(&job->groups, c->frame_groups);
        hw_store(&job->pauses, 0);
        hw_store(&job->closed, 1);
        hw_store_release(&page->jobs, jobs + 1);
    }
    c->frame_ns = c->frame_held_ns = c->frame_groups = 0;
}

void hw_gate_enter(struct hw_channel *c) {
    c->submit_ns = c->start_ns = hw_now();
    c->granted = c->leased = false;
    if (!c->frame_ns) c->frame_ns = c->submit_ns;
    c->frame_groups++;
    if (!hw_connected(c) || !still_there(c)) return;
    c->leased = take_lease(c);
    if (c->leased) return;
    hw_gate_settle(c); /* if the lease was taken back between its two looks */
    if (hw_load(&c->fd) < 0) return;
    c->granted = ask(c);
    c->start_ns = hw_now();
    c->frame_held_ns += c->start_ns - c->submit_ns;
}

/* ---- turns --------------------------------------------------------------------------------- */

bool hw_gate_reach(struct hw_channel *c, uint64_t now_ns) {
    c->submit_ns = now_ns;
    return hw_connected(c) && still_there(c);
}

bool hw_gate_is_connected(const struct hw_channel *c) { return hw_load(&c->fd) >= 0; }

bool hw_gate_is_silent(const struct hw_channel *c) { return !hw_daemon_of(c) || is_stale(c, hw_now()); }

bool hw_gate_take_lease(struct hw_channel *c) { return take_lease(c); }

bool hw_gate_ask(struct hw_channel *c) { return ask(c); }

/* The daemon does it the other way round: it says that it no longer looks, and then looks once more. */
static bool is_seen(const struct hw_channel *c) {
    return hw_load(&c->fd) >= 0 && hw_load_full(&hw_daemon_of(c)->polled);
}

bool hw_gate_announce(struct hw_channel *c) {
    c->seq++;
    c->units = hw_add_full(&hw_page_of(c)->asks, 1);
    bool known = is_seen(c);
    if (!known) {
        read_old_grants(c);
        known = tell(c, HW_SUBMIT, false);
    }
    c->units = 0;
    return known;
}

void hw_gate_rest(struct hw_channel *c) {
    if (!is_seen(c)) tell(c, HW_RELEASE, true);
}

void hw_gate_frame(struct hw_channel *c) {
    struct hw_client_page *page = hw_page_of(c);
    if (!c->works) end_frame(c, hw_now()); /* else its last group is about to go */
    if (!page) return;
    hw_count(&page->frames, 1);
    hw_store(&page->unknown, hw_survey_unknown());
}

uint32_t hw_gate_server(const struct hw_channel *c) {
    return hw_daemon_of(c) ? hw_load(&hw_daemon_of(c)->server) : 0;
}

void hw_gate_tell_server(struct hw_channel *c, bool enter) {
    struct hw_message m = {.type = enter ? HW_ENTER : HW_LEAVE, .seq = c->seq};
    if (hw_load(&c->fd) >= 0) hw_say(c, &m);
}

bool hw_gate_must_wait(const struct hw_channel *c) { return c->granted; }

void hw_gate_leave(struct hw_channel *c, bool frame, bool done) {
    c->finish_ns = hw_now();
    if (frame) end_frame(c, c->finish_ns);
    if (c->granted) {
        c->granted = false;
        tell(c, HW_COMPLETE, frame);
        return;
    }
    struct hw_client_page *page = hw_page_of(c);
    if (!page) return;
    if (!c->leased) {
        hw_count(&page->free_groups, 1);
        return;
    }
    hw_count(&page->passed, 1);
    uint64_t took_ns = c->finish_ns - c->submit_ns;
    hw_count(&page->used_ns, took_ns > c->expected_ns ? took_ns : c->expected_ns);
    hw_store(&page->last_ns, c->finish_ns);
    if (done) hw_gate_settle(c);
}
