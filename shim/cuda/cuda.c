/* Headway's interposer for the CUDA driver: takes work to the gate as turns (turn.h). The functions are
 * declared in cuda.def. However a program reaches them, by link, dlsym or cuGetProcAddress, it finds the
 * wrappers; an entry point or a version of one that is not declared passes through untouched. */
#define _GNU_SOURCE
#include "contexts.h"
#include "gate.h"
#include "green.h"
#include "loader.h"
#include "parts.h"
#include "own.h"
#include "survey.h"
#include "turn.h"
#include "units.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef int CUresult;
typedef void *CUstream;

#define EXPORT __attribute__((visibility("default")))
#define LIBRARY "libcuda.so.1"
#define SUCCESS 0
#define NOT_FOUND 500
#define NOT_READY 600
#define ALREADY_REGISTERED 712
#define NOT_PERMITTED 800
#define NOT_SUPPORTED 801
#define LEGACY ((CUstream)1)
#define PER_THREAD ((CUstream)2)
#define ALL_STREAMS ((CUstream)-1)
#define PER_THREAD_FLAG 2u

struct launch { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared;
    CUstream stream;
    const struct hw_attribute *attributes;
    unsigned count;
};

static _Thread_local char anchor __attribute__((aligned(16)));

/* ---- streams ----------------------------------------------------------------------------------- */

/* Each thread's default stream is another one, though all have one name. */
static void *own_lane(void) { return (void *)((uintptr_t)&anchor | 2); }

static inline void *lane_of(CUstream stream, bool per_thread) {
    void *name = stream == PER_THREAD || (!stream && per_thread) ? own_lane() : stream ? stream : LEGACY;
    return __builtin_expect(hw_has_contexts(), 0) ? hw_context_lane(stream, name) : name;
}

static bool is_per_thread(void *lane) { return (uintptr_t)lane > 15 && (uintptr_t)lane & 2; }

static CUstream stream_of(void *lane) { return is_per_thread(lane) ? PER_THREAD : hw_is_default(lane) ? LEGACY : lane; }

static bool is_recorded(CUstream stream) {
    static CUresult (*capturing)(CUstream, int *);
    int status = 0;
    if (!hw_load(&hw_fast.recorded)) return false;
    if (!capturing) capturing = hw_find_in(LIBRARY, "cuStreamIsCapturing");
    return !capturing || capturing(stream, &status) != SUCCESS || status;
}

/* What we ask of the driver must not spoil what another thread captures: threads are relaxed meanwhile. */
#define RELAXED 2
static int change_mode(int mode) {
    static CUresult (*exchange)(int *);
    if (mode < 0 || !hw_load(&hw_fast.recorded)) return -1;
    if (!exchange) exchange = hw_find_in(LIBRARY, "cuThreadExchangeStreamCaptureMode");
    return exchange && exchange(&mode) == SUCCESS ? mode : -1;
}

/* ---- marks --------------------------------------------------------------------------------------- */

/* The pages that the GPU writes marks into, as it sees them: the daemon's newest one, and those before. */
#define PAGES 8
static struct known {
    uintptr_t page;
    uint64_t address;
} pages[PAGES];
static unsigned next_page;

static bool device_address(hw_u32 *word, uint64_t *address) {
    static CUresult (*add)(void *, size_t, unsigned);
    static CUresult (*get)(uint64_t *, void *, unsigned);
    uintptr_t page = (uintptr_t)word & ~(uintptr_t)4095;
    struct known *known = NULL;
    for (int i = 0; i < PAGES && !known; i++)
        if (pages[i].page == page) known = &pages[i];
    if (!known) {
        known = &pages[next_page++ % PAGES];
        *known = (struct known){.page = page};
        if (!add) add = hw_find_in(LIBRARY, "cuMemHostRegister_v2");
        if (!get) get = hw_find_in(LIBRARY, "cuMemHostGetDevicePointer_v2");
        CUresult added = add ? add((void *)page, HW_PAGE, 1 | 2) : NOT_FOUND;
        if (!get || (added != SUCCESS && added != ALREADY_REGISTERED) ||
            get(&known->address, (void *)page, 0) != SUCCESS)
            *known = (struct known){0};
    }
    *address = known->address + ((uintptr_t)word & 4095);
    return known->address;
}

/* They may have gone with a context. */
static void forget_pages(void) { memset(pages, 0, sizeof pages); }

#define EVENTS 64
static void *spare[EVENTS]; /* of the only context, if there is one */
static int spares;

static bool mark_by_event(CUstream stream, void **event) {
    static CUresult (*create)(void **, unsigned), (*record)(void *, CUstream);
    if (!create) create = hw_find_in(LIBRARY, "cuEventCreate");
    if (!record) record = hw_find_in(LIBRARY, "cuEventRecord");
    if (!create || !record) return false;
    if (spares && !hw_has_contexts()) *event = spare[--spares];
    else if (create(event, 2) != SUCCESS) return false;
    if (record(*event, stream) == SUCCESS) return true;
    *event = NULL;
    return false;
}

static bool mark_relaxed(void *lane, hw_u32 *word, uint32_t value, void **event) {
    static CUresult (*write)(CUstream, uint64_t, uint32_t, unsigned);
    static bool tried, unable;
    uint64_t address;
    if (!tried) {
        tried = true;
        write = hw_find_in(LIBRARY, "cuStreamWriteValue32_v2");
        if (!write) write = hw_find_in(LIBRARY, "cuStreamWriteValue32");
    }
    if (write && !unable && device_address(word, &address)) {
        CUresult result = write(stream_of(lane), address, value, 0);
        if (result == SUCCESS) return true;
        /* Else the stream is none, or the page went with its context: another one may be better. */
        unable = result == NOT_SUPPORTED;
        forget_pages();
    }
    return mark_by_event(stream_of(lane), event);
}

static bool mark(void *lane, hw_u32 *word, uint32_t value, void **event) {
    HW_VISIT(lane);
    int mode = change_mode(RELAXED);
    bool marked = mark_relaxed(lane, word, value, event);
    change_mode(mode);
    return marked;
}

static bool event_done(void *event) {
    static CUresult (*query)(void *);
    if (!query) query = hw_find_in(LIBRARY, "cuEventQuery");
    int mode = change_mode(RELAXED);
    bool done = !query || query(event) != NOT_READY;
    change_mode(mode);
    return done;
}

static void forget(void *event) {
    static CUresult (*destroy)(void *);
    if (!destroy) destroy = hw_find_in(LIBRARY, "cuEventDestroy_v2");
    if (spares < EVENTS && !hw_has_contexts()) spare[spares++] = event;
    else if (destroy) destroy(event);
}

static bool lane_done(void *lane) {
    HW_VISIT(lane);
    static CUresult (*query)(CUstream);
    if (!query) query = hw_find_in(LIBRARY, "cuStreamQuery");
    int mode = change_mode(RELAXED);
    CUresult result = query ? query(stream_of(lane)) : NOT_READY;
    change_mode(mode);
    return result != NOT_READY && result != NOT_PERMITTED; /* as in a host function, where nothing may be asked */
}

static bool may_mark(void *lane) {
    if (is_per_thread(lane) && lane != own_lane()) return false;
    HW_VISIT(lane);
    return !is_recorded(stream_of(lane));
}

/* ---- gates that the GPU waits at ------------------------------------------------------------------- */

union op { /* CUstreamBatchMemOpParams */
    struct {
        int operation;
        uint64_t address, value;
        unsigned flags;
        uint64_t alias;
    } word;
    uint64_t space[6];
};
#define AWAIT 1
#define WRITE 2

static bool add_op(union op *ops, unsigned *count, int operation, hw_u32 *word, uint32_t value) {
    union op op = {.word = {.operation = operation, .value = value}};
    if (!device_address(word, &op.word.address)) return false;
    ops[(*count)++] = op;
    return true;
}

static CUresult (*send)(CUstream, unsigned, union op *, unsigned);

static bool can_gate(void) {
    static bool tried;
    if (!tried) send = hw_find_in(LIBRARY, "cuStreamBatchMemOp_v2");
    tried = true;
    return send;
}

static bool gate_relaxed(CUstream stream, const struct hw_piece *piece) {
    union op ops[3];
    unsigned count = 0;
    if (!send) return false;
    if (piece->closed && !add_op(ops, &count, WRITE, piece->closed, piece->before)) return false;
    if (piece->open && !add_op(ops, &count, AWAIT, piece->open, 1)) return false;
    if (piece->opened && !add_op(ops, &count, WRITE, piece->opened, piece->number)) return false;
    CUresult result = send(stream, count, ops, 0);
    if (result == NOT_SUPPORTED) send = NULL;
    else if (result != SUCCESS) forget_pages();
    return result == SUCCESS;
}

static bool gate(void *lane, const struct hw_piece *piece) {
    HW_VISIT(lane);
    int mode = change_mode(RELAXED);
    bool sent = gate_relaxed(stream_of(lane), piece);
    change_mode(mode);
    return sent;
}

static bool joins(void *lane) { return hw_is_default(lane); }

static void *timers[EVENTS];
static int timer_count;

static void time_now(void *lane, void **event) {
    HW_VISIT(lane);
    static CUresult (*create)(void **, unsigned), (*record)(void *, CUstream);
    if (!create) create = hw_find_in(LIBRARY, "cuEventCreate");
    if (!record) record = hw_find_in(LIBRARY, "cuEventRecord");
    *event = NULL;
    int mode = change_mode(RELAXED);
    if (timer_count && !hw_has_contexts()) *event = timers[--timer_count];
    else if (!create || create(event, 0) != SUCCESS) *event = NULL;
    if (*event && (!record || record(*event, stream_of(lane)) != SUCCESS)) *event = NULL;
    change_mode(mode);
}

static uint64_t between(void *begun, void *ended) {
    static CUresult (*elapsed)(float *, void *, void *);
    float ms = 0;
    if (!elapsed) elapsed = hw_find_in(LIBRARY, "cuEventElapsedTime");
    int mode = change_mode(RELAXED);
    bool known = elapsed && elapsed(&ms, begun, ended) == SUCCESS && ms > 0;
    change_mode(mode);
    return known ? (uint64_t)(ms * 1e6f) : 0;
}

static void forget_time(void *event) {
    static CUresult (*destroy)(void *);
    if (!destroy) destroy = hw_find_in(LIBRARY, "cuEventDestroy_v2");
    if (timer_count < EVENTS && !hw_has_contexts()) timers[timer_count++] = event;
    else if (destroy) destroy(event);
}

static const struct hw_lane_api api = {
    .mark = mark,
    .event_done = event_done,
    .forget = forget,
    .lane_done = lane_done,
    .may_mark = may_mark,
    .can_gate = can_gate,
    .gate = gate,
    .joins = joins,
    .time = time_now,
    .between = between,
    .forget_time = forget_time,
    .is_meant = hw_context_is_meant,
    .identify = hw_context_identify,
};

/* ---- signatures ----------------------------------------------------------------------------------- */

/* On fewer multiprocessors it takes longer. */
/* Which work a signature was made of last: the way of a copy or set, or a kernel. Units go by that. */
#define KERNEL 'k'
static _Thread_local char way_of_work;
#define bytes(way, size) (way_of_work = (way), (bytes)(way, size))

static inline uint64_t kernel(const void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared) {
    hw_launch_is((uintptr_t)f, (uint64_t)gx * gy * gz * bx * by * bz, 0, (uint64_t)bx * by * bz, shared);
    uint64_t hash = hw_mix(HW_SEED ^ hw_turn_told(), (uintptr_t)f);
    hash = hw_mix(hash, (uint64_t)gx << 32 | gy);
    hash = hw_mix(hash, (uint64_t)gz << 32 | bx);
    hash = hw_mix(hash, (uint64_t)by << 32 | bz);
    return hw_mix(hash, shared);
}

/* ---- wrappers, generated from cuda.def ------------------------------------------------------------ */

#define HOOKED(name, params) \
    typedef CUresult(*type_##name) params; \
    static struct { \
        type_##name real; \
        hw_u64 *calls; \
    } hook_##name HW_NEAR(16); \
    EXPORT CUresult name params;
#define HOOK(since, name, per_thread, params, args) HOOKED(name, params)
#include "cuda.def"

#define READY(name) \
    (HW_COUNT(hook_##name.calls), \
     hook_##name.real || \
         (hook_##name.real = (type_##name)hw_resolve_linked(#name, (void *)name, __builtin_return_address(0))))
#define IS_PLAIN(name) (hook_##name.real && !hook_##name.calls)

/* Work on its way to a stream. */
static enum hw_pass before(void *lane, uint64_t signature) {
    if (hw_turn_inside() || is_recorded(stream_of(lane))) return HW_FREE;
    if (hw_load(&hw_units)) return hw_unit_take(way_of_work) ? HW_OWNING : HW_FREE;
    return hw_turn_pass(&api, lane, signature);
}

/* Wait until a stream has done everything, but not for ever: its work may wait for what comes later. */
#define DONE_NS 2000000000ull
static bool is_done(void *lane) {
    uint64_t end = hw_now() + DONE_NS;
    struct timespec pause = {.tv_nsec = 20000};
    HW_OWN;
    while (!lane_done(lane)) {
        if (hw_now() > end) return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* It went, or not: then no turn is kept for it. */
static void after(void *lane, uint64_t signature, enum hw_pass pass, CUresult result) {
    if (pass == HW_FREE) return;
    if (pass == HW_OWNING) return hw_unit_give(!is_done(lane));
    if (pass >= HW_GATED) hw_turn_arrived();
    if (result != SUCCESS) hw_turn_failed();
    else if (pass == HW_WATCHED || pass == HW_ENDING) hw_turn_passed(&api, lane, signature, pass);
}

#define SEND(name, args) CUresult result = hook_##name.real args;

/* Launches that the share does not concern go as they are; others may go elsewhere (green.h). */
#define SEND_LAUNCH(name, args) \
    CUresult result = __builtin_expect(hw_turn_told() != 0, 0) ? away_##name args : hook_##name.real args;
#define SEND_WHOLE(name, args) \
    if (__builtin_expect(hw_turn_told() != 0, 0)) hw_green_whole(); \
    CUresult result = hook_##name.real args;

static uint64_t blocks_of(unsigned x, unsigned y, unsigned z) { return (uint64_t)x * y * z; }

static const struct launch *launch_on(struct launch *copy, CUstream stream) {
    copy->stream = stream;
    return copy;
}

#define LAUNCH_ONE(name, per_thread, params, args, own, signature, blocks, attributes, count, elsewhere) \
    __attribute__((cold, noinline)) static CUresult away_##name params { \
        void *lane = lane_of(own, per_thread); \
        struct hw_away away; \
        if (!hw_green_leave(&away, stream_of(lane), is_per_thread(lane), f, blocks, attributes, count)) \
            return hook_##name.real args; \
        CUresult result = hook_##name.real elsewhere; \
        return hw_green_return(&away, result) ? result : hook_##name.real args; \
    } \
    ASYNC_ONE(name, per_thread, params, args, own, signature, SEND_LAUNCH)

#define WAIT_FOR(name, args) \
    hw_turn_waiting(1); \
    CUresult result = hook_##name.real args; \
    hw_turn_waiting(-1);

/* All but the last part of large work, in a function that is called `next` without them. */
static size_t part_of(void *lane, char kind, size_t size, size_t unit, uint64_t to, uint64_t from) {
    if (hw_turn_inside() || is_recorded(stream_of(lane))) return 0;
    return hw_part_of(kind, size * unit, to, from) / unit;
}
#define ENDS(to, from) (uint64_t)(uintptr_t)(to), (uint64_t)(uintptr_t)(from)
#define IN_PARTS(whole, args, lane, kind, size, unit, ends, next) \
    size_t part = part_of(lane, kind, size, unit, ENDS ends), left = size; \
    CUresult result = SUCCESS; \
    for (size = part; part && left > part && result == SUCCESS; left -= part) { \
        result = whole args; \
        (void)next; \
    } \
    size = left; \
    return result == SUCCESS ? whole args : result;

#define ASYNC_ONE(name, per_thread, params, args, stream, signature, CALL) \
    SLOWLY(name, slow_##name, per_thread, params, args, stream, signature, CALL) \
    QUICKLY(name, per_thread, params, args, stream, signature, CALL)
#define PARTS_ONE(name, per_thread, params, args, stream, signature, CALL, kind, size, unit, ends, next) \
    SLOWLY(name, whole_##name, per_thread, params, args, stream, signature, CALL) \
    __attribute__((cold, noinline)) static CUresult slow_##name params { \
        IN_PARTS(whole_##name, args, lane_of(stream, per_thread), kind, size, unit, ends, next) \
    } \
    QUICKLY(name, per_thread, params, args, stream, signature, CALL)

#define SLOWLY(name, slow, per_thread, params, args, stream, signature, CALL) \
    __attribute__((cold, noinline)) static CUresult slow params { \
        void *lane = lane_of(stream, per_thread); \
        way_of_work = KERNEL; \
        uint64_t hash = signature; \
        enum hw_pass pass = before(lane, hash); \
        CALL(name, args) \
        after(lane, hash, pass, result); \
        return result; \
    }
#define QUICKLY(name, per_thread, params, args, stream, signature, CALL) \
    __attribute__((aligned(64))) CUresult name params { \
        if (__builtin_expect(!IS_PLAIN(name), 0) && !READY(name)) return NOT_FOUND; \
        void *lane = lane_of(stream, per_thread); \
        bool joins = false; \
        if (!hw_turn_is_fast(lane) && !(joins = hw_turn_join(lane, signature))) return slow_##name args; \
        CALL(name, args) \
        if (joins) hw_turn_joined(); \
        if (result != SUCCESS) hw_turn_failed(); \
        return result; \
    }
#define ASYNC(since, name, twin, params, args, stream, signature) \
    ASYNC_ONE(name, false, params, args, stream, signature, SEND) \
    ASYNC_ONE(twin, true, params, args, stream, signature, SEND)
#define LAUNCH(since, name, twin, params, args, stream, signature, ...) \
    LAUNCH_ONE(name, false, params, args, stream, signature, __VA_ARGS__) \
    LAUNCH_ONE(twin, true, params, args, stream, signature, __VA_ARGS__)
#define WHOLE(since, name, twin, params, args, stream, signature) \
    ASYNC_ONE(name, false, params, args, stream, signature, SEND_WHOLE) \
    ASYNC_ONE(twin, true, params, args, stream, signature, SEND_WHOLE)
#define READ(since, name, twin, params, args, stream, signature) \
    ASYNC_ONE(name, false, params, args, stream, signature, WAIT_FOR) \
    ASYNC_ONE(twin, true, params, args, stream, signature, WAIT_FOR)

#define PARTS(since, name, twin, params, args, stream, signature, ...) \
    PARTS_ONE(name, false, params, args, stream, signature, SEND, __VA_ARGS__) \
    PARTS_ONE(twin, true, params, args, stream, signature, SEND, __VA_ARGS__)
#define READ_PARTS(since, name, twin, params, args, stream, signature, ...) \
    PARTS_ONE(name, false, params, args, stream, signature, WAIT_FOR, __VA_ARGS__) \
    PARTS_ONE(twin, true, params, args, stream, signature, WAIT_FOR, __VA_ARGS__)

/* A copy that was waited for shows that what stood before it is done. */
#define COPY_WHOLE(name, per_thread, params, args, signature) \
    static CUresult whole_##name params { \
        void *lane = lane_of(NULL, per_thread); \
        uint64_t hash = signature; \
        enum hw_pass pass = before(lane, hash); \
        WAIT_FOR(name, args) \
        after(lane, hash, pass, result); \
        if (pass != HW_FREE && result == SUCCESS) hw_turn_look(); \
        return result; \
    }
#define COPY(since, name, twin, params, args, signature) \
    COPY_ONE(name, false, params, args, signature) COPY_ONE(twin, true, params, args, signature)
#define COPY_ONE(name, per_thread, params, args, signature) \
    COPY_WHOLE(name, per_thread, params, args, signature) \
    CUresult name params { return READY(name) ? whole_##name args : NOT_FOUND; }
#define COPY_PARTS_ONE(name, per_thread, params, args, signature, kind, size, unit, ends, next) \
    COPY_WHOLE(name, per_thread, params, args, signature) \
    CUresult name params { \
        if (!READY(name)) return NOT_FOUND; \
        IN_PARTS(whole_##name, args, lane_of(NULL, per_thread), kind, size, unit, ends, next) \
    }
#define COPY_PARTS(since, name, twin, params, args, signature, ...) \
    COPY_PARTS_ONE(name, false, params, args, signature, __VA_ARGS__) \
    COPY_PARTS_ONE(twin, true, params, args, signature, __VA_ARGS__)

/* Waiting that failed may mean that nothing of the program will ever be done. */
#define WAITED(result, done) \
    do { \
        if ((result) == SUCCESS) done; \
        else if ((result) == NOT_READY) hw_turn_polls(); \
        else hw_turn_failed(); \
    } while (0)

#define WAIT_ONE(name, per_thread, params, args, stream) \
    CUresult name params { \
        if (!READY(name)) return NOT_FOUND; \
        hw_turn_waits(lane_of(stream, per_thread), false); \
        WAIT_FOR(name, args) \
        WAITED(result, hw_turn_synced(lane_of(stream, per_thread), false)); \
        return result; \
    }
#define WAIT(since, name, twin, params, args, stream) \
    WAIT_ONE(name, false, params, args, stream) WAIT_ONE(twin, true, params, args, stream)

/* The stream waits for another one's work, which may have to wait for its turn: that is not part of a piece. */
#define JOIN_ONE(name, per_thread, params, args, stream) \
    CUresult name params { \
        if (!READY(name)) return NOT_FOUND; \
        hw_turn_joins(lane_of(stream, per_thread)); \
        return hook_##name.real args; \
    }
#define JOIN(since, name, twin, params, args, stream) \
    JOIN_ONE(name, false, params, args, stream) JOIN_ONE(twin, true, params, args, stream)

#define WAIT_ALL(since, name, params, args, place) \
    CUresult name params { \
        if (!READY(name)) return NOT_FOUND; \
        place; \
        hw_turn_waits(NULL, true); \
        WAIT_FOR(name, args) \
        WAITED(result, hw_turn_synced(NULL, true)); \
        return result; \
    }

#define LOOK(since, name, params, args) \
    CUresult name params { \
        if (!READY(name)) return NOT_FOUND; \
        WAIT_FOR(name, args) \
        WAITED(result, hw_turn_look()); \
        return result; \
    }

/* Whether a capture really began or ended is asked of the stream: ends in the wrong thread, or of nothing,
 * end nothing. */
static bool is_captured(void *lane) {
    static CUresult (*capturing)(CUstream, int *);
    int status = 0;
    if (!capturing) capturing = hw_find_in(LIBRARY, "cuStreamIsCapturing");
    return capturing && capturing(stream_of(lane), &status) == SUCCESS && status;
}

static void count_capture(bool was, bool is) {
    if (was != is) hw_add(&hw_fast.recorded, is - was);
}

#define CAPTURE_ONE(name, per_thread, params, args) \
    CUresult name params { \
        if (!READY(name)) return NOT_FOUND; \
        HW_OWN; \
        void *lane = lane_of(stream, per_thread); \
        bool was = is_captured(lane); \
        CUresult result = hook_##name.real args; \
        count_capture(was, is_captured(lane)); \
        return result; \
    }
#define CAPTURE(since, name, twin, params, args) \
    CAPTURE_ONE(name, false, params, args) CAPTURE_ONE(twin, true, params, args)

#define END(since, name, params, args, stream, place, ends) \
    CUresult name params { \
        if (!READY(name)) return NOT_FOUND; \
        place; \
        hw_turn_end_lane(stream, (stream) == ALL_STREAMS); \
        ends; \
        return hook_##name.real args; \
    }

#define NOTE(since, name, params, args, what) \
    CUresult name params { \
        if (!READY(name)) return NOT_FOUND; \
        what; \
        return hook_##name.real args; \
    }

#include "cuda.def"

/* ---- for every other way to them -------------------------------------------------------------------- */

HOOKED(cuGetProcAddress, (const char *symbol, void **function, int version, uint64_t flags))
HOOKED(cuGetProcAddress_v2, (const char *symbol, void **function, int version, uint64_t flags, int *status))

#define LOOKUPS \
    HOOK(11030, cuGetProcAddress, 0, , ) \
    HOOK(12000, cuGetProcAddress_v2, 0, , )

const struct hw_hook hw_cuda_hooks[] = {
#define HOOK(since, name, per_thread, params, args) {#name, (void *)name, (void **)&hook_##name.real, &hook_##name.calls},
    LOOKUPS
#include "cuda.def"
};

const size_t hw_cuda_hook_count = sizeof hw_cuda_hooks / sizeof *hw_cuda_hooks;

/* What cuGetProcAddress gives for a plain name. */
static const struct meaning {
    int since;
    bool per_thread;
} meanings[] = {
#define HOOK(since, name, per_thread, params, args) {since, per_thread},
    LOOKUPS
#include "cuda.def"
};

/* The name without what tells its version: cuMemcpyHtoD_v2_ptds is asked for as cuMemcpyHtoD. */
static bool is_called(const char *name, const char *plain) {
    size_t n = strlen(plain);
    return !strncmp(name, plain, n) && (!name[n] || (name[n] == '_' && (name[n + 1] == 'v' || name[n + 1] == 'p')));
}

/* The newest version we know up to what was asked for; none if the driver may mean a newer one. */
#define KNOWN_VERSION 13099
HW_KNOWS("CUDA", KNOWN_VERSION)
static const struct hw_hook *by_meaning(const char *plain, int version, bool per_thread) {
    const struct hw_hook *best = NULL;
    int since = 0;
    if (version > KNOWN_VERSION) return NULL;
    for (size_t i = 0; i < hw_cuda_hook_count; i++) {
        const struct meaning *m = &meanings[i];
        bool twin = m->per_thread == per_thread || (!m->per_thread && !strstr(hw_cuda_hooks[i].name, "_pt"));
        if (!is_called(hw_cuda_hooks[i].name, plain) || !twin || m->since > version) continue;
        if (best && (m->since < since || (m->since == since && m->per_thread != per_thread))) continue;
        best = &hw_cuda_hooks[i];
        since = m->since;
    }
    return best;
}

/* Whether what cuGetProcAddress gives is what dlsym gives. Then an address that is none of ours is
 * another version, and stays as it is. */
static bool is_known_by_address(void) {
    static int known = -1;
    void *given = NULL;
    if (known >= 0) return known;
    if (hook_cuGetProcAddress_v2.real) hook_cuGetProcAddress_v2.real("cuInit", &given, 12000, 0, NULL);
    else if (hook_cuGetProcAddress.real) hook_cuGetProcAddress.real("cuInit", &given, 11030, 0);
    known = given && given == hw_find_in(LIBRARY, "cuInit");
    return known;
}

/* Ours in the place of what was found: known by its address, or else by what the name means. */
static void replace(const char *plain, void **function, int version, uint64_t flags, const char *way) {
    const struct hw_hook *hook = NULL;
    if (!plain || !function || !*function) return;
    for (size_t i = 0; i < hw_cuda_hook_count && !hook; i++) {
        const struct hw_hook *h = &hw_cuda_hooks[i];
        if (!is_called(h->name, plain)) continue;
        if (*function == h->wrapper) return hw_survey_hooked(h->name, way);
        if (!*h->real) *h->real = hw_find_in(LIBRARY, h->name);
        if (*h->real == *function) hook = h;
    }
    if (!hook && !is_known_by_address()) hook = by_meaning(plain, version, flags & PER_THREAD_FLAG);
    if (!hook) {
        *function = hw_survey_passed(plain, way, version, *function);
        return;
    }
    if (!*hook->real) *hook->real = *function;
    *function = hook->wrapper;
    hw_survey_hooked(hook->name, way);
}

#define LOOK_UP(name, params, args) \
    CUresult name params { \
        HW_COUNT(hook_##name.calls); \
        if (!hook_##name.real) \
            hook_##name.real = (type_##name)hw_resolve(#name, (void *)name, __builtin_return_address(0)); \
        if (!hook_##name.real) return NOT_FOUND; \
        CUresult result = hook_##name.real args; \
        if (result == SUCCESS) replace(symbol, function, version, flags, #name); \
        return result; \
    }
LOOK_UP(cuGetProcAddress, (const char *symbol, void **function, int version, uint64_t flags), (symbol, function, version, flags))
LOOK_UP(cuGetProcAddress_v2, (const char *symbol, void **function, int version, uint64_t flags, int *status), (symbol, function, version, flags, status))
