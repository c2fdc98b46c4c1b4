/* Streams of operations in order, and the threads that carry them out: one for each GPU stands for this process's
 * part of that, one calls the program's callbacks. */
#define _GNU_SOURCE
#include "driver.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* How often to look at a value in memory that a stream waits for. */
#define POLL_NS 20000

struct settings settings = {.slice_us = 2000, .memory = 1ull << 30, .version = 13000, .seed = 1,
                            .devices = 1};
pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t work, done = PTHREAD_COND_INITIALIZER;
static pthread_cond_t host_work = PTHREAD_COND_INITIALIZER;
static struct op *host_op; /* the callback to call now */
struct memory *memories;
_Thread_local bool per_thread, in_callback;
_Thread_local char thread_mark;
static struct ctx *contexts[64]; /* those with streams, for the workers */
static int context_count;
static int log_file = -1;
static bool started, forked;
static uint64_t stream_ids = 16;

/* ---- settings ------------------------------------------------------------------------------ */

static void read_settings(void) {
    static const struct { const char *name; uint64_t *value; } table[] = {
        {"SOFTCUDA_SLICE_US", &settings.slice_us},     {"SOFTCUDA_SWITCH_US", &settings.switch_us},
        {"SOFTCUDA_MEMORY", &settings.memory},         {"SOFTCUDA_LAUNCH_US", &settings.launch_us},
        {"SOFTCUDA_JITTER_US", &settings.jitter_us},   {"SOFTCUDA_SEED", &settings.seed},
        {"SOFTCUDA_LATE_US", &settings.late_us},       {"SOFTCUDA_NO_MEMOPS", &settings.no_memops},
        {"SOFTCUDA_VERSION", &settings.version},       {"SOFTCUDA_NO_GREEN", &settings.no_green},
        {"SOFTCUDA_GREEN_US", &settings.green_us},     {"SOFTCUDA_DEVICES", &settings.devices},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *text = getenv(table[i].name);
        char *end;
        if (!text || !*text) continue;
        *table[i].value = strtoull(text, &end, 10);
        if (*end) fprintf(stderr, "softcuda: %s=%s is no number\n", table[i].name, text), exit(2);
    }
    if (settings.devices < 1 || settings.devices > MOST_DEVICES) fprintf(stderr, "softcuda: SOFTCUDA_DEVICES?\n"), exit(2);
    const char *log = getenv("SOFTCUDA_LOG");
    if (log && *log) log_file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

__attribute__((constructor(101))) static void load(void) { read_settings(); }

void jitter(void) {
    if (!settings.jitter_us) return;
    static uint64_t state;
    uint64_t x = __atomic_add_fetch(&state, 0x9e3779b97f4a7c15ull, __ATOMIC_RELAXED) + settings.seed;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    pause_ns((x ^ (x >> 31)) % (settings.jitter_us * 1000));
}

/* ---- memory -------------------------------------------------------------------------------- */

struct memory *find_memory(CUdeviceptr address, size_t size) {
    for (struct memory *m = memories; m; m = m->next)
        if (address >= m->address && size <= m->size && address - m->address <= m->size - size) return m;
    return NULL;
}

/* Where the bytes of a device address are, NULL if it is none. */
char *host_address(CUdeviceptr address, size_t size) {
    return find_memory(address, size) ? (char *)(uintptr_t)(address & ~DEVICE_BIT) : NULL;
}

void forget_memory(struct memory *gone) {
    struct memory **link = &memories;
    while (*link != gone) link = &(*link)->next;
    *link = gone->next;
    if (gone->kind != REGISTERED) free((void *)(uintptr_t)(gone->address & ~DEVICE_BIT));
    free(gone);
}

/* ---- devices ------------------------------------------------------------------------------- */

int visible[MOST_DEVICES], visible_count;

/* As NVIDIA's driver has it: numbers or identifiers, up to the first that names none. */
__attribute__((constructor)) static void read_visible(void) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES"), uuid[] = "GPU-736f6674-7761-7265-2d63-7564612d303";
    size_t length = sizeof uuid - 1;
    if (!text)
        while (visible_count < (int)settings.devices) visible[visible_count] = visible_count, visible_count++;
    for (char *end; text && *text && visible_count < (int)settings.devices; text = *end == ',' ? end + 1 : "") {
        long place = strtol(text, &end, 10);
        if (!strncasecmp(text, uuid, length)) place = strtol(text + length, &end, 10);
        if (end == text || place < 0 || place >= (long)settings.devices) return;
        visible[visible_count++] = (int)place;
    }
}

/* ---- what is ready ------------------------------------------------------------------------- */

static bool blocks(const struct stream *s) { return !s->legacy && !(s->flags & CU_STREAM_NON_BLOCKING); }

/* The legacy default stream waits for everything before it in blocking streams, and they for it. */
static bool in_turn(const struct stream *s, uint64_t seq) {
    const struct stream *legacy = s->ctx->legacy;
    if (blocks(s)) return !legacy->head || legacy->head->seq > seq;
    if (!s->legacy) return true;
    for (const struct stream *other = s->ctx->streams; other; other = other->next)
        if (blocks(other) && other->head && other->head->seq < seq) return false;
    return true;
}

static bool value_is_there(const struct op *op) {
    uint64_t wanted = op->value.value, mask = op->value.bytes == 4 ? UINT32_MAX : UINT64_MAX;
    uint64_t there = op->value.bytes == 4 ? __atomic_load_n((uint32_t *)op->value.address, __ATOMIC_ACQUIRE)
                                          : __atomic_load_n((uint64_t *)op->value.address, __ATOMIC_ACQUIRE);
    switch (op->value.test & 3) {
    case CU_WAIT_EQ: return there == (wanted & mask);
    case CU_WAIT_AND: return there & wanted & mask;
    case CU_WAIT_NOR: return ~(there | wanted) & mask;
    default: return op->value.bytes == 4 ? (int32_t)(there - wanted) >= 0 : (int64_t)(there - wanted) >= 0;
    }
}

static bool seen_late(const struct stream *s) {
    return settings.late_us && now_ns() < s->finished_ns + settings.late_us * 1000;
}

/* Asks for another look soon when only time or memory can make it ready. */
static bool is_ready(const struct op *op, bool *look_again) {
    struct stream *s = op->stream;
    if (op->running || !in_turn(s, op->seq)) return false;
    if (s->ctx->error) return true; /* nothing is carried out any more, only taken away */
    if (op->kind == WAIT_EVENT) return op->event.event->completed >= op->event.version;
    if (op->kind == HOST && host_op) return false;
    bool ready = op->kind == WAIT                            ? value_is_there(op)
                 : op->kind == RECORD || op->kind == WRITE ? !seen_late(s)
                                                           : true;
    *look_again |= !ready;
    return ready;
}

static struct op *pick(int device, bool *look_again) {
    struct op *best = NULL;
    for (int i = 0; i < context_count; i++)
        for (struct stream *s = contexts[i]->device == device ? contexts[i]->streams : NULL; s; s = s->next)
            if (s->head && is_ready(s->head, look_again))
                if (!best || s->priority < best->stream->priority ||
                    (s->priority == best->stream->priority && s->head->seq < best->seq))
                    best = s->head;
    return best;
}

/* ---- carrying out -------------------------------------------------------------------------- */

void unlink_stream(struct stream *s) {
    struct stream **link = &s->ctx->streams;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    free(s);
}

void drop_event(struct event *e) {
    if (--e->users == 0) free(e);
}

static void finish(struct op *op) {
    struct stream *s = op->stream;
    s->head = op->next;
    if (!s->head) s->tail = NULL;
    if (op->kind == KERNEL || op->kind == COPY || op->kind == SET || op->kind == HOST) s->finished_ns = now_ns();
    if (op->kind == RECORD) {
        struct event *e = op->event.event;
        if (e->completed < op->event.version) e->completed = op->event.version;
        e->time_ns = now_ns();
    }
    if (op->kind == RECORD || op->kind == WAIT_EVENT) drop_event(op->event.event);
    if (op->kind == COPY) free(op->copy.staged);
    free(op);
    if (s->doomed && !s->head) unlink_stream(s);
    pthread_cond_broadcast(&done);
    pthread_cond_broadcast(&work);
}

static void copy_rows(const struct op *op) {
    for (size_t row = 0; row < op->copy.height; row++)
        memmove(op->copy.to + row * op->copy.to_pitch, op->copy.from + row * op->copy.from_pitch, op->copy.width);
}

_Thread_local unsigned waves;

/* On fewer multiprocessors a kernel takes longer: so many more waves of blocks as it has there than on all of them. */
static unsigned waves_of(const struct op *op) {
    unsigned sms = op->stream->sms ? op->stream->sms : SMS, blocks = op->launch.blocks;
    return (blocks + sms - 1) / sms;
}

static CUresult carry_out(struct op *op) {
    switch (op->kind) {
    case KERNEL:
        waves = waves_of(op);
        return op->launch.kernel->run(op->launch.args);
    case COPY:
        gpu_run(0);
        copy_rows(op);
        return 0;
    case SET:
        gpu_run(0);
        for (size_t i = 0; i < op->set.count; i++)
            memcpy(op->set.to + i * (size_t)op->set.bytes, &op->set.value, (size_t)op->set.bytes);
        return 0;
    case WRITE:
        if (op->value.bytes == 4)
            __atomic_store_n((uint32_t *)op->value.address, (uint32_t)op->value.value, __ATOMIC_RELEASE);
        else
            __atomic_store_n((uint64_t *)op->value.address, op->value.value, __ATOMIC_RELEASE);
        return 0;
    default: return 0;
    }
}

static void write_log(const struct op *op, uint64_t id, unsigned sms, int device, uint64_t start) {
    static const char *names[] = {"kernel", "copy", "set", "release", "host", "record", "wait_event", "write", "wait"};
    if (log_file < 0) return;
    char line[160];
    const char *name = op->kind == KERNEL ? op->launch.kernel->name : names[op->kind];
    char where[16] = "", there[16] = "";
    if (sms) snprintf(where, sizeof where, "@%u", sms);
    if (device) snprintf(there, sizeof there, "%%%d", device);
    int n = snprintf(line, sizeof line, "%d %llu %s%s%s %llu %llu\n", getpid(), (unsigned long long)id, name, where, there,
                     (unsigned long long)start, (unsigned long long)now_ns());
    if (write(log_file, line, (size_t)n) != n) close(log_file), log_file = -1;
}

static void step(struct op *op) {
    struct ctx *ctx = op->stream->ctx;
    op->running = true;
    if (op->kind == HOST && (!ctx->error || op->keep_on_error)) {
        host_op = op;
        pthread_cond_signal(&host_work);
        return;
    }
    if (!ctx->error) {
        uint64_t id = op->stream->id;
        unsigned sms = op->stream->sms;
        int device = ctx->device;
        pthread_mutex_unlock(&big);
        jitter();
        uint64_t start = now_ns();
        CUresult error = carry_out(op);
        write_log(op, id, sms, device, gpu_began_ns > start ? gpu_began_ns : start);
        pthread_mutex_lock(&big);
        if (error && !ctx->error) ctx->error = error;
    }
    if (op->kind == RELEASE) forget_memory(op->release);
    finish(op);
}

static void *device_thread(void *place) {
    int device = (int)(intptr_t)place;
    pthread_setname_np(pthread_self(), "softcuda-gpu");
    gpu_open(device);
    pthread_mutex_lock(&big);
    for (;;) {
        bool look_again = false;
        struct op *op = pick(device, &look_again);
        if (op) {
            step(op);
            continue;
        }
        gpu_leave(); /* an idle process does not keep the others off */
        if (look_again) {
            struct timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            t.tv_nsec += POLL_NS;
            if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
            pthread_cond_timedwait(&work, &big, &t);
        } else {
            pthread_cond_wait(&work, &big);
        }
    }
    return NULL;
}

static void *host_thread(void *unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "softcuda-host");
    in_callback = true;
    pthread_mutex_lock(&big);
    for (;;) {
        while (!host_op) pthread_cond_wait(&host_work, &big);
        struct op *op = host_op;
        CUresult status = op->stream->ctx->error;
        uint64_t id = op->stream->id, start = now_ns();
        struct stream *handle = op->stream;
        pthread_mutex_unlock(&big);
        if (op->host.function) op->host.function(op->host.data);
        else op->host.callback(handle, status, op->host.data);
        write_log(op, id, 0, handle->ctx->device, start);
        pthread_mutex_lock(&big);
        host_op = NULL;
        finish(op);
    }
    return NULL;
}

/* ---- start --------------------------------------------------------------------------------- */

/* The threads are gone in a forked child, and CUDA with them. */
static void in_child(void) {
    started = false;
    forked = true;
    pthread_mutex_init(&big, NULL);
}

CUresult initialized(void) { return started ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED; }

EXPORT CUresult cuInit(unsigned flags) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&big);
    if (forked) return leave(CUDA_ERROR_NOT_INITIALIZED);
    if (!visible_count) return leave(CUDA_ERROR_NO_DEVICE);
    if (!started) {
        pthread_condattr_t clock;
        pthread_t thread;
        sigset_t all, before;
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_cond_init(&work, &clock);
        sigfillset(&all); /* signals are for the program's threads */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        for (intptr_t i = 0; i < (intptr_t)settings.devices; i++) pthread_create(&thread, NULL, device_thread, (void *)i);
        pthread_create(&thread, NULL, host_thread, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_atfork(NULL, NULL, in_child);
        started = true;
    }
    return leave(CUDA_SUCCESS);
}

/* ---- calls --------------------------------------------------------------------------------- */

CUresult leave(CUresult result) {
    pthread_mutex_unlock(&big);
    return result;
}

CUresult enter(CUcontext *ctx) {
    if (!started) return CUDA_ERROR_NOT_INITIALIZED;
    if (in_callback) return CUDA_ERROR_NOT_PERMITTED;
    jitter();
    pthread_mutex_lock(&big);
    *ctx = current_ctx();
    CUresult error = !*ctx               ? CUDA_ERROR_INVALID_CONTEXT
                     : (*ctx)->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                         : (*ctx)->error;
    return error ? leave(error) : CUDA_SUCCESS;
}

static struct stream *thread_stream(CUcontext ctx) {
    for (struct stream *s = ctx->streams; s; s = s->next)
        if (s->thread == &thread_mark) return s;
    struct stream *s = new_stream(ctx, CU_STREAM_DEFAULT, 0);
    s->thread = &thread_mark;
    return s;
}

CUresult enter_stream(CUstream handle, struct stream **stream) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (!handle) handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    *stream = NULL;
    if (handle == CU_STREAM_LEGACY) *stream = ctx->legacy;
    else if (handle == CU_STREAM_PER_THREAD) *stream = thread_stream(ctx);
    for (int i = 0; i < context_count && !*stream; i++)
        for (struct stream *s = contexts[i]->streams; s && !*stream; s = s->next)
            if (s == handle && !s->doomed) *stream = s;
    if (!*stream) return leave(CUDA_ERROR_INVALID_HANDLE);
    return (*stream)->ctx->error ? leave((*stream)->ctx->error) : CUDA_SUCCESS;
}

CUresult enter_own_stream(CUstream handle, struct stream **stream) {
    CUresult error = enter_stream(handle, stream);
    if (error) return error;
    return (*stream)->ctx == current_ctx() ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_HANDLE);
}

struct stream *new_stream(CUcontext ctx, unsigned flags, int priority) {
    struct stream *s = calloc(1, sizeof *s);
    *s = (struct stream){.next = ctx->streams, .ctx = ctx, .flags = flags, .priority = priority, .id = ++stream_ids};
    if (!ctx->legacy) {
        s->legacy = true;
        ctx->legacy = s;
        s->id = 1;
        if (context_count == sizeof contexts / sizeof *contexts) abort();
        contexts[context_count++] = ctx;
    }
    ctx->streams = s;
    return s;
}

CUresult submit(struct stream *s, const struct op *wanted) {
    if (s->capture) {
        if (s->capture->status != CU_CAPTURE_ACTIVE) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        s->captured++;
        s->joined = false;
        return add_node(s->capture->graph, wanted);
    }
    CUresult error = s->legacy ? touch_legacy(s->ctx, true) : 0;
    if (error) return error;
    struct op *op = malloc(sizeof *op);
    *op = *wanted;
    op->next = NULL;
    op->running = false;
    op->stream = s;
    op->seq = ++s->ctx->seq;
    if (s->tail) s->tail->next = op;
    else s->head = op;
    s->tail = op;
    pthread_cond_broadcast(&work);
    return CUDA_SUCCESS;
}

/* Whatever waits is thrown away, whatever runs is let finish. */
void end_context(CUcontext ctx) {
    ctx->destroyed = true;
    end_captures(ctx, NULL);
    for (struct stream *s = ctx->streams; s; s = s->next) {
        while (s->head && s->head->running) pthread_cond_wait(&done, &big);
        s->head = s->tail = NULL;
    }
    for (int i = 0; i < context_count; i++)
        if (contexts[i] == ctx) contexts[i] = contexts[--context_count];
    pthread_cond_broadcast(&done);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Nothing up to seq is left in the stream, nor in those that it waits for. */
bool is_idle(const struct stream *s, uint64_t seq) {
    if ((s->head && s->head->seq <= seq) || seen_late(s)) return false;
    if (s->legacy)
        for (const struct stream *other = s->ctx->streams; other; other = other->next)
            if (blocks(other) && ((other->head && other->head->seq <= seq) || seen_late(other))) return false;
    return true;
}

static void wait_a_while(void) {
    if (!settings.late_us) {
        pthread_cond_wait(&done, &big);
        return;
    }
    pthread_mutex_unlock(&big); /* time alone can make it true */
    pause_ns(POLL_NS * 5);
    pthread_mutex_lock(&big);
}

CUresult wait_idle(struct stream *s, uint64_t seq) {
    CUcontext ctx = s->ctx;
    while (!ctx->destroyed && !is_idle(s, seq)) wait_a_while();
    return ctx->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : ctx->error;
}

CUresult wait_context(CUcontext ctx) {
    uint64_t seq = ctx->seq;
    for (struct stream *s = ctx->streams; s && !ctx->destroyed;) {
        if (is_idle(s, seq)) {
            s = s->next;
        } else {
            wait_a_while();
            s = ctx->streams; /* the list may have changed */
        }
    }
    return ctx->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : ctx->error;
}

CUresult wait_event(struct event *e) {
    uint64_t version = e->recorded;
    e->users++;
    while (e->completed < version && !e->ctx->error && !e->ctx->destroyed) wait_a_while();
    CUresult error = e->ctx->error;
    drop_event(e);
    return error;
}
