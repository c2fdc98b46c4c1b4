/* A GPU that all processes share; this is one for each thread that plays one. Whoever runs on it holds a lock on one byte of a file; the next in
 * line holds another byte while it waits, so the GPU goes round and nobody who just gave it back takes it
 * again at once. The kernel drops the locks of the dead. */
#define _GNU_SOURCE
#include "driver.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { DEVICE_BYTE, QUEUE_BYTE };
/* Shorter waits are spun: a sleep ends late by about this much. */
#define SPIN_NS 60000ull

static _Thread_local int file = -1;
static _Thread_local bool held;
static _Thread_local uint64_t slice_end;
_Thread_local uint64_t gpu_began_ns;

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void pause_ns(uint64_t ns) {
    uint64_t end = now_ns() + ns;
    if (ns > SPIN_NS) {
        uint64_t early = end - SPIN_NS;
        struct timespec t = {(time_t)(early / 1000000000ull), (long)(early % 1000000000ull)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
    }
    while (now_ns() < end) {}
}

static int byte_lock(int command, short type, off_t byte) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    while ((result = fcntl(file, command, &lock)) && errno == EINTR) {}
    return command == F_GETLK ? lock.l_type != F_UNLCK : result;
}

void gpu_open(int device) {
    const char *first = getenv("SOFTCUDA_GPU");
    char path[4096];
    prctl(PR_SET_TIMERSLACK, 1);
    if (!first || !*first) return;
    snprintf(path, sizeof path, device ? "%s.%d" : "%s", first, device);
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) fprintf(stderr, "softcuda: SOFTCUDA_GPU=%s cannot be opened\n", path), exit(2);
}

static void take(void) {
    pid_t last = 0, self = getpid();
    if (byte_lock(F_SETLKW, F_WRLCK, QUEUE_BYTE) || byte_lock(F_SETLKW, F_WRLCK, DEVICE_BYTE)) abort();
    byte_lock(F_SETLK, F_UNLCK, QUEUE_BYTE);
    held = true;
    if (pread(file, &last, sizeof last, 0) != sizeof last || last != self) {
        if (last) pause_ns(settings.switch_us * 1000);
        if (pwrite(file, &self, sizeof self, 0) != sizeof self) abort();
    }
    slice_end = now_ns() + settings.slice_us * 1000;
}

void gpu_leave(void) {
    if (held) byte_lock(F_SETLK, F_UNLCK, DEVICE_BYTE);
    held = false;
}

static void hold(void) {
    if (file < 0) return;
    if (held && now_ns() >= slice_end) {
        if (byte_lock(F_GETLK, F_WRLCK, QUEUE_BYTE)) gpu_leave(); /* somebody waits */
        else slice_end = now_ns() + settings.slice_us * 1000;
    }
    if (!held) take();
}

/* Be on the GPU for so long, all slices together. */
void gpu_run(uint64_t ns) {
    hold();
    gpu_began_ns = now_ns();
    for (;;) {
        uint64_t start = now_ns(), part = ns;
        if (file >= 0 && settings.slice_us && start + part > slice_end)
            part = slice_end > start ? slice_end - start : 0;
        pause_ns(part);
        uint64_t used = now_ns() - start;
        if (used >= ns) return;
        ns -= used;
        hold();
    }
}
