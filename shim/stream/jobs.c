#define _GNU_SOURCE
#include "jobs.h"
#include "lanes.h"

#define FIRST_OCTAVE 10 /* pauses of up to 2 us are in the first places */

static struct hw_client_page *page(void) { return hw_channel() ? hw_page() : NULL; }

static struct hw_job *last(void) {
    uint32_t jobs = page() ? hw_load(&page()->jobs) : 0;
    return jobs ? &page()->job[(jobs - 1) % HW_JOBS] : NULL;
}

static uint64_t groups(void) { return hw_load(&page()->passed) + hw_load(&hw_fast.unsaid); }

static uint32_t place_of(uint64_t ns) {
    uint32_t octave = ns ? 63 - (uint32_t)__builtin_clzll(ns) : 0;
    if (octave < FIRST_OCTAVE) return 0;
    uint32_t place = 2 * (octave - FIRST_OCTAVE) + (uint32_t)(ns >> (octave - 1) & 1);
    return place < HW_PAUSES ? place : HW_PAUSES - 1;
}

static void begin(uint64_t now) {
    uint32_t jobs = hw_load(&page()->jobs);
    struct hw_job *job = &page()->job[jobs % HW_JOBS];
    hw_store(&job->begun_ns, hw.job.open && hw.job.said_ns ? hw.job.said_ns : now);
    hw_store(&job->ended_ns, now);
    hw_store(&job->deadline_ns, hw.job.deadline_ns);
    hw_store(&job->waited_ns, 0);
    hw_store(&job->held_ns, 0);
    hw_store(&job->groups, 0);
    hw_store(&job->pauses, 0);
    hw_store(&job->closed, 0);
    hw.job.passed = groups();
    hw.job.said_ns = 0;
    hw_store_release(&page()->jobs, jobs + 1);
}

bool hw_job_is_on(void) { return hw_load(&hw.job.works) && last(); }

void hw_job_works(uint64_t now) {
    if (!page() || hw_job_is_on()) return;
    uint64_t took = hw.job.paused_ns && now > hw.job.paused_ns ? now - hw.job.paused_ns : 0;
    uint64_t rest_ns = hw_daemon() ? hw_load(&hw_daemon()->rest_ns) : 0;
    if (!hw_load(&hw.job.works) && hw.job.paused_ns) hw_count(&page()->pauses[place_of(took)], 1);
    hw_store(&hw.job.works, 1);
    if (!last() || hw_load(&last()->closed) || hw.job.said_ns || (!hw.job.open && took >= rest_ns)) begin(now);
}

void hw_job_pauses(uint64_t now) {
    struct hw_job *job = last();
    hw_store(&hw.job.works, 0);
    hw.job.paused_ns = now;
    if (!job) return;
    hw_count(&page()->paused, 1);
    hw_store(&job->ended_ns, now);
    hw_store(&job->groups, (uint32_t)(groups() - hw.job.passed));
    hw_count(&job->pauses, 1);
}

static void add(hw_u32 *sum, uint64_t ns) {
    uint32_t before = hw_load(sum);
    hw_store(sum, ns < UINT32_MAX - before ? before + (uint32_t)ns : UINT32_MAX);
}

void hw_job_waited(uint64_t ns) {
    if (hw_load(&hw.job.works) && last()) add(&last()->waited_ns, ns);
}

void hw_job_held(uint64_t ns) {
    if (hw_load(&hw.job.works) && last()) add(&last()->held_ns, ns);
}

bool hw_job_tells(void) {
    uint32_t after = hw_load(&hw_daemon()->tell_after);
    return !last() || hw_load(&last()->closed) || (after && hw_load(&last()->pauses) >= after);
}

void hw_job_begin(uint64_t now, uint64_t deadline) {
    hw.job.open = true;
    hw.job.said_ns = now;
    hw.job.deadline_ns = deadline;
    if (!hw_load(&hw.job.works)) return;
    hw_store(&hw.job.works, 0); /* what went before is no part of it */
    hw.job.paused_ns = 0;
}

bool hw_job_worked(void) { return hw.job.open && !hw.job.said_ns; }

bool hw_job_end(uint64_t now, bool count) {
    if (count && hw.job.open && hw.job.said_ns && page()) begin(now); /* there was no work in it */
    if (hw.job.open && !hw.job.said_ns && last()) {
        hw_store(&last()->ended_ns, now);
        hw_store(&last()->closed, 1);
    }
    hw.job.open = false;
    hw.job.said_ns = hw.job.deadline_ns = 0;
    return last();
}

void hw_job_forget(void) {
    hw_store(&hw.job.works, 0);
    hw.job.paused_ns = 0;
}
