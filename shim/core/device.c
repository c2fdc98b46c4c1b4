#define _GNU_SOURCE
#include "atomics.h"
#include "device.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int device_cpu = -1;

/* Contexts whose threads have been placed: programs that change between contexts in every frame must
 * not pay for reading /proc each time. Lossy: two contexts in one slot are only placed more often. */
#define SLOTS 64
static hw_pointer placed[SLOTS];

static hw_pointer *slot(const void *context) { return &placed[((uintptr_t)context >> 6) % SLOTS]; }

/* HEADWAY_SOFTWARE_GPU names the CPU that plays the GPU. */
void hw_device_init(void) {
    const char *cpu = getenv("HEADWAY_SOFTWARE_GPU");
    if (!cpu || !*cpu) return;
    char *end;
    long number = strtol(cpu, &end, 10);
    if (*end || number < 0 || number >= CPU_SETSIZE) return;
    device_cpu = (int)number;
}

static int is_device_thread(const char *task) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, name, sizeof name - 1);
    close(fd);
    return n > 0 && !strncmp(name, "llvmpipe-", 9);
}

void hw_device_ended(void *context) {
    if (device_cpu >= 0) hw_replace_full(slot(context), &context, NULL);
}

static long divide(cpu_set_t *device, cpu_set_t *others) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(device);
    CPU_SET(device_cpu, device);
    CPU_ZERO(others);
    for (long i = 0; i < cpus; i++)
        if (i != device_cpu) CPU_SET(i, others);
    return cpus;
}

/* A new thread is where its maker is, and has its class. */
static _Thread_local int own_class;
static _Thread_local struct sched_param own_priority;

void hw_device_making(void) {
    cpu_set_t device, others;
    struct sched_param first = {.sched_priority = 1};
    if (device_cpu < 0) return;
    divide(&device, &others);
    own_class = sched_getscheduler(0);
    sched_getparam(0, &own_priority);
    sched_setaffinity(0, sizeof device, &device);
    sched_setscheduler(0, SCHED_FIFO, &first); /* if permitted: groups run to completion */
}

void hw_device_made(void) {
    cpu_set_t device, others;
    if (device_cpu < 0) return;
    sched_setscheduler(0, own_class, &own_priority);
    if (divide(&device, &others) > 1) sched_setaffinity(0, sizeof others, &others);
}

void hw_device_bound(void *context) {
    if (device_cpu < 0) return;
    if (hw_exchange_full(slot(context), context) == context) return;
    cpu_set_t device, others;
    long cpus = divide(&device, &others);
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return;
    struct dirent *entry;
    while ((entry = readdir(tasks))) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid <= 0) continue;
        if (is_device_thread(entry->d_name)) {
            struct sched_param first = {.sched_priority = 1};
            sched_setaffinity(tid, sizeof device, &device);
            sched_setscheduler(tid, SCHED_FIFO, &first); /* if permitted: groups run to completion */
        } else if (cpus > 1) {
            sched_setaffinity(tid, sizeof others, &others);
        }
    }
    closedir(tasks);
}
