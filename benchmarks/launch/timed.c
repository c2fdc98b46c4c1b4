/* A CUDA driver with a GPU that takes its time: a thread does what was sent, in order, and a kernel takes as many us as
 * its first argument says. It sees when the gate that it would wait at closes, and how long it goes on after that. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { KERNEL, AWAIT, WRITE, EVENT, RING = 1 << 16, MOST = 1 << 16, BUSY = 600 };
enum { LATENCY_US = 5, OPERATION_US = 1 };

struct op {
    int kind;
    void *address;
    uint64_t value;
    double sent_us;
};

struct memory_op {
    int operation;
    uint32_t *address;
    uint64_t value, more[3];
};

static struct op ring[RING];
static _Atomic uint64_t head, tail, gates;
static volatile uint32_t *gate;
static double closed_us, overruns[MOST];
static size_t overrun_count;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void run_until(double until_us) {
    while (now_us() < until_us)
        if (gate && !*gate && !closed_us) closed_us = now_us();
}

static void await(volatile uint32_t *word) {
    gate = word;
    if (!*word && closed_us && overrun_count < MOST) overruns[overrun_count++] = now_us() - closed_us;
    while (!__atomic_load_n(word, __ATOMIC_ACQUIRE)) {}
    closed_us = 0;
}

static void *run(void *unused) {
    double free_us = 0;
    for (;;) {
        uint64_t at = tail;
        while (at == head) {}
        struct op *op = &ring[at % RING];
        if (free_us < op->sent_us + LATENCY_US) free_us = op->sent_us + LATENCY_US;
        free_us += op->kind == KERNEL ? (double)op->value : OPERATION_US;
        run_until(free_us);
        if (op->kind == WRITE) __atomic_store_n((uint32_t *)op->address, (uint32_t)op->value, __ATOMIC_RELEASE);
        if (op->kind == EVENT) *(double *)op->address = free_us;
        if (op->kind == AWAIT) await(op->address), free_us = now_us();
        tail = at + 1;
    }
    return unused;
}

static int push(int kind, void *address, uint64_t value) {
    while (head - tail >= RING) {}
    ring[head % RING] = (struct op){kind, address, value, now_us()};
    head++;
    return 0;
}

/* What the GPU has met so far: gates, and for how many us it went on after the last ones of them were closed. */
size_t gpu_seen(uint64_t *gates_so_far, double **went_on_us);
size_t gpu_seen(uint64_t *gates_so_far, double **went_on_us) {
    *gates_so_far = gates;
    *went_on_us = overruns;
    return overrun_count;
}

#define FUNCTION(name, ...) \
    int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

FUNCTION(cuInit, unsigned flags) {
    pthread_t thread;
    (void)flags;
    return pthread_create(&thread, NULL, run, NULL);
}

FUNCTION(cuLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
         unsigned shared, void *stream, void **params, void **extra) {
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)extra;
    return push(KERNEL, NULL, *(uint32_t *)params[0]);
}

FUNCTION(cuStreamBatchMemOp_v2, void *stream, unsigned count, struct memory_op *ops, unsigned flags) {
    (void)stream, (void)flags;
    for (unsigned i = 0; i < count; i++) {
        gates += ops[i].operation == AWAIT;
        push(ops[i].operation, ops[i].address, ops[i].value);
    }
    return 0;
}

FUNCTION(cuStreamSynchronize, void *stream) {
    (void)stream;
    while (tail != head) {}
    return 0;
}

FUNCTION(cuStreamQuery, void *stream) {
    (void)stream;
    return tail == head ? 0 : BUSY;
}

FUNCTION(cuMemHostRegister_v2, void *address, size_t size, unsigned flags) {
    (void)address, (void)size, (void)flags;
    return 0;
}

FUNCTION(cuMemHostGetDevicePointer_v2, void **there, void *here, unsigned flags) {
    (void)flags;
    *there = here;
    return 0;
}

FUNCTION(cuEventCreate, double **event, unsigned flags) {
    (void)flags;
    return !(*event = calloc(1, sizeof **event));
}

FUNCTION(cuEventRecord, double *event, void *stream) {
    (void)stream;
    return push(EVENT, event, 0);
}

FUNCTION(cuEventQuery, double *event) {
    (void)event;
    return 0;
}

FUNCTION(cuEventElapsedTime, float *ms, const double *from, const double *to) {
    *ms = (float)((*to - *from) / 1000);
    return 0;
}

FUNCTION(cuEventDestroy_v2, double *event) {
    free(event);
    return 0;
}
