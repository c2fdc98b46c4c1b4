/* Inside the software CUDA driver: what its files share.
 *
 *     gpu.c     a GPU that all processes share, in time slices
 *     engine.c  streams of operations, and the thread that carries them out
 *     lookup.c  cuGetProcAddress
 *     driver.c  devices, contexts, memory, copies
 *     launch.c  modules, kernels, launches
 *     stream.c  streams, events, captures, graphs
 *     green.c   green contexts
 *
 * Settings, all from the environment (times in microseconds, numbers only):
 *     SOFTCUDA_DEVICES    how many GPUs the machine has (1; 4 at most); CUDA_VISIBLE_DEVICES is heeded
 *     SOFTCUDA_GPU        file that stands for the machine's GPU; without it a process has one to itself. That of the
 *                         second GPU is FILE.1, and so on
 *     SOFTCUDA_SLICE_US   time slice between processes (2000; 0: a kernel runs to completion)
 *     SOFTCUDA_SWITCH_US  lost when the GPU goes from one process to another (0)
 *     SOFTCUDA_MEMORY     bytes of device memory (1 GiB)
 *     SOFTCUDA_LOG        file for a line per operation: pid stream operation start_ns end_ns (on the GPU); the operation
 *                         is KERNEL@SMS on a part of the multiprocessors, and has %DEVICE behind it on other GPUs
 *                         than the first
 * and how it misbehaves:
 *     SOFTCUDA_LAUNCH_US  every launch takes so long
 *     SOFTCUDA_JITTER_US  random delays up to this in calls and before operations (SOFTCUDA_SEED)
 *     SOFTCUDA_LATE_US    completion is seen this much too late (sync, query, events, written values)
 *     SOFTCUDA_NO_MEMOPS  values are neither written nor waited for in streams
 *     SOFTCUDA_NO_GREEN   1: there are no green contexts; 2 to 5: to split, to describe, to create, or a stream fails
 *     SOFTCUDA_GREEN_US   to make one takes so long
 *     SOFTCUDA_VERSION    version it claims (13000); from 14000 on with entry points nobody knows
 *     SOFTCUDA_HIDE       comma-separated names that cuGetProcAddress does not find */
#pragma once
#include "abi.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

extern struct settings {
    uint64_t slice_us, switch_us, memory, launch_us, jitter_us, seed, late_us, no_memops, no_green, green_us, version,
        devices;
} settings;

/* ---- gpu.c ------------------------------------------------------------------------------- */

uint64_t now_ns(void);
void pause_ns(uint64_t ns);
/* Each of a GPU's thread. */
void gpu_open(int device);
void gpu_run(uint64_t ns);
void gpu_leave(void);
extern _Thread_local uint64_t gpu_began_ns; /* when the operation now being done came on the GPU */

/* ---- engine.c ---------------------------------------------------------------------------- */

enum kind { KERNEL, COPY, SET, RELEASE, HOST, RECORD, WAIT_EVENT, WRITE, WAIT };

struct op {
    struct op *next;
    enum kind kind;
    bool running, keep_on_error; /* a callback is called even when the context is lost */
    uint64_t seq;
    struct stream *stream;
    union {
        struct { const struct kernel *kernel; unsigned blocks; unsigned char args[48]; } launch;
        struct { char *to, *from, *staged; size_t width, height, to_pitch, from_pitch; } copy;
        struct { char *to; uint32_t value; size_t count; int bytes; } set;
        struct memory *release;
        struct { CUhostFn function; CUstreamCallback callback; void *data; } host;
        struct { struct event *event; uint64_t version; } event;
        struct { void *address; uint64_t value; int bytes; unsigned test; } value;
    };
};

struct kernel {
    const char *name;
    int sizes[5]; /* of its parameters, up to the first 0 */
    CUresult (*run)(const unsigned char *args);
    int cluster; /* blocks that must run together; 0: none */
};

struct stream {
    struct stream *next;
    CUcontext ctx;
    unsigned flags;
    int priority;
    unsigned sms; /* that its kernels may use; 0: all */
    bool legacy, doomed;
    const void *thread; /* whose per-thread default stream this is */
    uint64_t id, finished_ns;
    struct op *head, *tail;
    struct capture *capture;
    uint64_t captured;  /* operations captured here so far */
    bool joined;        /* nothing captured here is left without a way back to the origin */
};

struct event {
    struct event *next;
    CUcontext ctx;
    unsigned flags, users;
    uint64_t recorded, completed, time_ns;
    struct capture *capture; /* recorded in this capture, by this stream, after so many operations */
    struct stream *from;
    uint64_t after;
};

struct capture {
    uint64_t id;
    int mode, status;
    struct stream *origin;
    const void *thread;
    struct graph *graph;
};

struct graph {
    struct graph *next;
    struct op *head, *tail;
    bool executable;
};

struct ctx {
    struct ctx *next;
    struct stream *streams, *legacy;
    int device; /* its place in the machine */
    CUresult error; /* sticky */
    bool destroyed;
    uint64_t seq, users;
    unsigned flags;
};

struct memory {
    struct memory *next;
    CUcontext ctx;
    int device;
    CUdeviceptr address;
    size_t size;
    enum { DEVICE, HOST_MEMORY, REGISTERED } kind;
    bool leaving; /* a stream will free it */
};

/* Multiprocessors of a device; devices of a machine. */
enum { SMS = 132, MOST_DEVICES = 4 };

/* Device addresses have this bit set, so that a program that touches one itself dies of it. */
#define DEVICE_BIT (1ull << 47)

extern pthread_mutex_t big; /* guards everything below, and all objects */
extern pthread_cond_t work, done;
extern struct memory *memories;
extern _Thread_local bool per_thread, in_callback;
extern _Thread_local char thread_mark; /* its address names the thread */

/* Begin a call: on success the lock is held, and leave() ends the call. */
CUresult enter(CUcontext *ctx);
CUresult enter_stream(CUstream handle, struct stream **stream);
/* The same for work that the current context must be the stream's for. */
CUresult enter_own_stream(CUstream handle, struct stream **stream);
CUresult leave(CUresult result);
CUresult initialized(void);
/* The driver's devices: those of the machine that CUDA_VISIBLE_DEVICES names, in its order. */
extern int visible[MOST_DEVICES], visible_count;
CUresult is_device(CUdevice device, const void *answer);
struct ctx *current_ctx(void);
void jitter(void);

struct stream *new_stream(CUcontext ctx, unsigned flags, int priority);
CUresult submit(struct stream *s, const struct op *wanted);
bool is_idle(const struct stream *s, uint64_t seq);
CUresult wait_idle(struct stream *s, uint64_t seq);
CUresult wait_context(CUcontext ctx);
void end_context(CUcontext ctx);
struct memory *find_memory(CUdeviceptr address, size_t size);
char *host_address(CUdeviceptr address, size_t size);
void forget_memory(struct memory *gone);
void drop_event(struct event *e);
void unlink_stream(struct stream *s);
CUresult wait_event(struct event *e);

extern _Thread_local unsigned waves; /* of the kernel now being done: so many times it takes what one of its blocks takes */
CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);

CUresult make_launch(struct op *op, CUfunction f, const unsigned dims[6], void **params, void **extra);

/* ---- stream.c: captures ------------------------------------------------------------------ */

CUresult unsafe_call(void);
void end_captures(CUcontext ctx, const struct stream *origin);
CUresult touch_legacy(CUcontext ctx, bool invalidate);
CUresult invalidate(struct capture *c, CUresult error);
CUresult add_node(struct graph *g, const struct op *wanted);

/* One body for an entry point and its variant for the per-thread default stream. */
#define PT(name, suffix, params, args) \
    static CUresult do_##name params; \
    EXPORT CUresult name params { per_thread = false; return do_##name args; } \
    EXPORT CUresult name##suffix params { per_thread = true; return do_##name args; } \
    static CUresult do_##name params
