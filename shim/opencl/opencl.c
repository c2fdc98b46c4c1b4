/* Headway's interposer for OpenCL: takes work to the gate as turns (turn.h). The functions are declared in
 * opencl.def. A program reaches them through an ICD loader; a loader that knows layers puts ours in, and
 * where none does, functions of the same names stand before the loader's. Without the public headers none of
 * this is built. */
#define _GNU_SOURCE
#include "loader.h"
#if !defined(HEADWAY_WITHOUT_OPENCL) && __has_include(<CL/cl_layer.h>)
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#pragma GCC visibility push(default)
#include <CL/cl_layer.h>
#pragma GCC visibility pop
#include "device.h"
#include "gate.h"
#include "own.h"
#include "survey.h"
#include "turn.h"
#include <stdlib.h>
#include <string.h>

/* ---- what we need of OpenCL ourselves --------------------------------------------------------- */

#define TOOLS \
    TOOL(clEnqueueMarkerWithWaitList) TOOL(clEnqueueMarker) TOOL(clFlush) TOOL(clGetCommandQueueInfo) \
    TOOL(clGetEventInfo) TOOL(clRetainEvent) TOOL(clReleaseEvent) TOOL(clSetEventCallback) \
    TOOL(clGetKernelInfo)

static struct {
#define TOOL(name) __typeof__(&name) name;
    TOOLS
#undef TOOL
} tools;

static HW_SHARED(bool) layered; /* a loader has put the layer in: that is the way to the gate */
static _Thread_local int within; /* a driver that calls its own functions through us is not the program */

/* The loader's functions, from the library that `real` is in. */
static void find_tools(void *real) {
    static hw_int tried;
    if (hw_load(&layered) || hw_exchange_full(&tried, true)) return;
#define TOOL(name) tools.name = (__typeof__(&name))hw_find_beside(real, #name);
    TOOLS
#undef TOOL
}

/* ---- queues ------------------------------------------------------------------------------------ */

/* What is known of a queue. OpenCL cannot be asked whether a queue is done: `last` is an event that comes
 * after everything on it, if there is one. */
struct queue {
    cl_command_queue queue;
    cl_event last;
    bool in_order;
    int users; /* as far as we saw */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue queues[HW_LANES];
static hw_int held; /* events that the program has yet to set */

static struct queue *find(cl_command_queue key) {
    for (size_t i = 0; i < HW_LANES; i++)
        if (queues[i].queue == key) return &queues[i];
    return NULL;
}

/* Only a queue that has taken work is asked anything: it is one. */
static struct queue *learn(cl_command_queue key) {
    struct queue *q = find(key);
    cl_command_queue_properties properties = 0;
    if (q || !(q = find(NULL)) || !tools.clGetCommandQueueInfo) return q;
    if (tools.clGetCommandQueueInfo(key, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL) != CL_SUCCESS)
        return NULL;
    *q = (struct queue){.queue = key, .users = 1};
    q->in_order = !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    return q;
}

static void set_last(struct queue *q, cl_event event) {
    if (q->last) tools.clReleaseEvent(q->last);
    q->last = event;
}

/* Something went onto the queue. `covers`: its event comes after all before it. */
static void note(cl_command_queue key, const cl_event *event, bool covers) {
    HW_HOLD(&lock);
    struct queue *q = learn(key);
    if (q) {
        cl_event last = event && (covers || q->in_order) ? *event : NULL;
        if (last && tools.clRetainEvent(last) != CL_SUCCESS) last = NULL;
        set_last(q, last);
    }
}

static bool is_in_order(cl_command_queue key) {
    HW_HOLD(&lock);
    const struct queue *q = find(key);
    bool in_order = q && q->in_order;
    return in_order;
}

/* The queue on which nothing came after this event. */
static cl_command_queue ended_by(cl_event event) {
    cl_command_queue key = NULL;
    HW_HOLD(&lock);
    for (size_t i = 0; i < HW_LANES && event && !key; i++)
        if (queues[i].queue && queues[i].last == event) key = queues[i].queue;
    return key;
}

/* ---- marks ------------------------------------------------------------------------------------- */

/* Comes when everything before it is done, also on a queue without order. It is sent on its way: work that
 * a program has not flushed would never be done. */
static cl_event put_marker(cl_command_queue key) {
    cl_event event = NULL;
    cl_int error = CL_INVALID_OPERATION;
    if (tools.clEnqueueMarkerWithWaitList) error = tools.clEnqueueMarkerWithWaitList(key, 0, NULL, &event);
    if (error != CL_SUCCESS && tools.clEnqueueMarker) error = tools.clEnqueueMarker(key, &event);
    if (error != CL_SUCCESS) return NULL;
    tools.clFlush(key);
    return event;
}

static bool event_done(void *event) { /* an error is an end, too */
    cl_int status = CL_COMPLETE;
    cl_int error = tools.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    return error != CL_SUCCESS || status <= CL_COMPLETE;
}

static void forget(void *event) { tools.clReleaseEvent(event); }

struct mark { /* for the daemon, which must see it also when the program does nothing */
    hw_u32 *word;
    uint32_t value;
};

static void CL_CALLBACK reached(cl_event event, cl_int status, void *data) {
    struct mark *mark = data;
    (void)event, (void)status;
    hw_launch_reached(mark->word, mark->value);
    hw_turn_written(mark->word, mark->value);
    free(mark);
}

static bool mark(void *lane, hw_u32 *word, uint32_t value, void **event) {
    cl_event marker = put_marker(lane);
    struct mark *m = marker && tools.clSetEventCallback ? malloc(sizeof *m) : NULL;
    if (m) *m = (struct mark){word, value};
    if (m && tools.clSetEventCallback(marker, CL_COMPLETE, reached, m) != CL_SUCCESS) free(m);
    *event = marker;
    return marker;
}

/* A marker that was put just now comes at once if nothing stands before it. */
#define AT_ONCE_NS 100000u
static bool comes_at_once(cl_event marker) {
    for (uint64_t end = hw_now() + AT_ONCE_NS; marker && hw_now() < end;)
        if (event_done(marker)) return true;
    return false;
}

static bool lane_done(void *lane) {
    HW_HOLD(&lock);
    struct queue *q = find(lane);
    bool done = !q || (q->last && event_done(q->last));
    if (q && !q->last) done = comes_at_once(q->last = put_marker(lane));
    return done;
}

/* A queue that has never taken work may be none. */
static bool may_mark(void *lane) {
    HW_HOLD(&lock);
    return find(lane) && tools.clFlush && tools.clGetEventInfo && tools.clRetainEvent && tools.clReleaseEvent;
}

static bool held_back(void) { return hw_load(&held) > 0; }

static const struct hw_lane_api api = {
    .mark = mark,
    .event_done = event_done,
    .forget = forget,
    .lane_done = lane_done,
    .may_mark = may_mark,
    .held_back = held_back,
};

/* ---- signatures ---------------------------------------------------------------------------------- */

#ifdef HW_PREDICT
/* Kernels by their names, and the bytes of the buffers that are their arguments. */
#define KERNELS 64
#define ARGUMENTS 16
static struct arguments {
    cl_kernel kernel;
    uint64_t name, buffer[ARGUMENTS];
} arguments[KERNELS];

/* With the lock held. Two kernels in one place forget each other's buffers. */
static struct arguments *arguments_of(cl_kernel k) {
    struct arguments *a = &arguments[hw_mix(HW_SEED, (uintptr_t)k) * 0x9e3779b97f4a7c15ull >> 58];
    char name[256] = "";
    if (a->kernel == k) return a;
    *a = (struct arguments){.kernel = k, .name = HW_SEED};
    if (tools.clGetKernelInfo) tools.clGetKernelInfo(k, CL_KERNEL_FUNCTION_NAME, sizeof name - 1, name, NULL);
    for (const char *c = name; *c; c++) a->name = hw_mix(a->name, (uint8_t)*c);
    return a;
}

/* Buffers by their handles, for nothing may be asked of an argument that may be no buffer at all. One that is gone says
 * something only if a number happens to be its handle. */
#define BUFFERS 4096
static struct {
    cl_mem memory;
    uint64_t bytes;
} buffers[BUFFERS];

static uint32_t place_of(cl_mem memory) { return hw_mix(HW_SEED, (uintptr_t)memory) * 0x9e3779b97f4a7c15ull >> 52; }

static void note_buffer(cl_mem memory, uint64_t bytes) {
    HW_HOLD(&lock);
    buffers[place_of(memory)].memory = memory;
    buffers[place_of(memory)].bytes = bytes;
}

/* The driver has taken it. */
static void note_argument(cl_kernel k, cl_uint index, size_t size, const void *value) {
    if (index >= ARGUMENTS || !hw_gate_enabled()) return;
    cl_mem memory = NULL;
    if (size == sizeof memory && value) memcpy(&memory, value, sizeof memory);
    HW_HOLD(&lock);
    uint32_t at = place_of(memory);
    arguments_of(k)->buffer[index] = memory && buffers[at].memory == memory ? buffers[at].bytes : 0;
}

static void note_launch(cl_kernel k, cl_uint dimensions, const size_t *global, const size_t *local) {
    uint64_t items = 1, block = 1, behind = 0;
    for (cl_uint i = 0; i < dimensions && i < 3; i++) {
        items *= global ? global[i] : 1;
        block *= local ? local[i] : 1;
    }
    HW_HOLD(&lock);
    const struct arguments *a = arguments_of(k);
    for (int i = 0; i < ARGUMENTS; i++) behind += a->buffer[i];
    hw_launch_is(a->name, items, behind, block, 0);
}
#else
#define note_launch(k, dimensions, global, local) ((void)0)
#endif

static uint64_t kernel(cl_kernel k, cl_uint dimensions, const size_t *global, const size_t *local) {
    note_launch(k, dimensions, global, local);
    uint64_t hash = hw_mix(hw_mix(HW_SEED, (uintptr_t)k), dimensions);
    for (cl_uint i = 0; i < dimensions && i < 3; i++)
        hash = hw_mix(hw_mix(hash, global ? global[i] : 0), local ? local[i] : 0);
    return hash;
}

static uint64_t volume(const size_t *region) {
    return region ? (uint64_t)region[0] * region[1] * region[2] : 0;
}

/* ---- before and after the real functions ------------------------------------------------------------ */

static bool is_ours_to_see(cl_command_queue queue) { return queue && !within && hw_gate_enabled() && !hw_turn_inside(); }

static void went(cl_command_queue queue, const cl_event *event, bool blocking, uint64_t hash, enum hw_pass pass) {
    HW_OWN;
    note(queue, event, false);
    hw_turn_passed(&api, queue, hash, pass);
    if (!blocking) return;
    if (is_in_order(queue)) hw_turn_synced(queue, false);
    else hw_turn_look();
}

static void waited_for(cl_uint count, const cl_event *events) {
    HW_OWN;
    bool all = false;
    for (cl_uint i = 0; events && i < count; i++) {
        cl_command_queue queue = ended_by(events[i]);
        if (queue) hw_turn_synced(queue, false);
        all |= queue != NULL;
    }
    if (count && !all) hw_turn_look();
}

/* What clGetEventInfo told. */
static bool is_over(cl_event_info what, size_t size, const void *value) {
    return what == CL_EVENT_COMMAND_EXECUTION_STATUS && value && size >= sizeof(cl_int) &&
           *(const cl_int *)value <= CL_COMPLETE;
}

static bool is_last(cl_command_queue key, int change) {
    HW_HOLD(&lock);
    struct queue *q = key ? find(key) : NULL;
    return q && (q->users += change) <= 0;
}

static void count_users(cl_command_queue key, int change) {
    if (!is_last(key, change)) return;
    hw_turn_end_lane(key, false);
    HW_HOLD(&lock);
    struct queue *q = find(key);
    if (!q) return;
    set_last(q, NULL);
    q->queue = NULL;
}

/* ---- wrappers, generated from opencl.def -------------------------------------------------------------- */

#define HOOK(ret, name, params, args) \
    static __typeof__(&name) real_##name; \
    static hw_u64 *calls_##name; \
    static ret CL_API_CALL layer_##name params;
#include "opencl.def"

static cl_icd_dispatch target; /* what comes after the layer */

/* Each of them twice: as a function of the layer, and before the loader's function. */
#define READY(name) \
    (real_##name || \
     (real_##name = (__typeof__(&name))hw_resolve_linked(#name, (void *)name, __builtin_return_address(0))))
#define TWICE(kind, ret, fault, name, params, args, ...) \
    static ret CL_API_CALL layer_##name params { \
        HW_COUNT(calls_##name); \
        kind(ret, target.name args, __VA_ARGS__) \
    } \
    ret CL_API_CALL name params { \
        if (!READY(name)) return fault; \
        if (hw_load(&layered)) return real_##name args; \
        HW_COUNT(calls_##name); \
        find_tools((void *)real_##name); \
        kind(ret, real_##name args, __VA_ARGS__) \
    }

#define DO_WORK(ret, call, good, queue, blocking, event, signature) \
    bool seen = is_ours_to_see(queue); \
    uint64_t hash = seen ? signature : 0; \
    enum hw_pass pass = seen ? hw_turn_pass(&api, queue, hash) : HW_FREE; \
    within++; \
    if (blocking) hw_turn_waiting(1); \
    ret result = call; \
    if (blocking) hw_turn_waiting(-1); \
    within--; \
    if (seen && (good)) went(queue, event, blocking, hash, pass); \
    else if (pass != HW_FREE) hw_turn_synced(NULL, false); /* nothing went: look again */ \
    return result;
#define WORK(name, params, args, queue, blocking, event, signature) \
    TWICE(DO_WORK, cl_int, CL_INVALID_OPERATION, name, params, args, result == CL_SUCCESS, queue, blocking, event, signature)
#define MAP(name, params, args, queue, blocking, event, signature) \
    TWICE(DO_WORK, void *, NULL, name, params, args, result, queue, blocking, event, signature)

#define DO_MARK(ret, call, queue, all, event) \
    ret result = call; \
    if (result == CL_SUCCESS && event && is_ours_to_see(queue)) note(queue, event, all); \
    return result;
#define MARK(name, params, args, queue, all, event) \
    TWICE(DO_MARK, cl_int, CL_INVALID_OPERATION, name, params, args, queue, all, event)

#define DO_FINISH(ret, call, queue) \
    hw_turn_waiting(1); \
    ret result = call; \
    hw_turn_waiting(-1); \
    if (result == CL_SUCCESS && !within) hw_turn_synced(queue, false); \
    return result;
#define FINISH(name, params, args, queue) TWICE(DO_FINISH, cl_int, CL_INVALID_OPERATION, name, params, args, queue)

#define DO_WAIT(ret, call, count, events) \
    hw_turn_waiting(1); \
    ret result = call; \
    hw_turn_waiting(-1); \
    if (result == CL_SUCCESS && !within && !hw_turn_inside()) waited_for(count, events); \
    return result;
#define WAIT(name, params, args, count, events) \
    TWICE(DO_WAIT, cl_int, CL_INVALID_OPERATION, name, params, args, count, events)

#define DO_HOLD(ret, call, good, change) \
    ret result = call; \
    if (good) hw_add(&held, change); \
    return result;
#define GOOD_cl_event result
#define GOOD_cl_int result == CL_SUCCESS
#define HOLD(ret, name, params, args, change) TWICE(DO_HOLD, ret, (ret)0, name, params, args, GOOD_##ret, change)

#define DO_KEEP(ret, call, queue, change) \
    count_users(queue, change); \
    ret result = call; \
    return result;
#define KEEP(name, params, args, queue, change) \
    TWICE(DO_KEEP, cl_int, CL_INVALID_OPERATION, name, params, args, queue, change)

#define DO_MAKE(ret, call, ...) \
    hw_device_making(); \
    ret result = call; \
    hw_device_made(); \
    return result;
#define MAKE(name, params, args) TWICE(DO_MAKE, cl_int, CL_INVALID_OPERATION, name, params, args, )

#define DO_MADE(ret, call, size) \
    ret result = call; \
    if (result && !within) note_buffer(result, size); \
    return result;
#define MADE(name, params, args, size) TWICE(DO_MADE, cl_mem, NULL, name, params, args, size)

#define DO_ASK(ret, call, asked) \
    ret result = call; \
    return result ? hw_survey_passed(asked, "clGetExtensionFunctionAddressForPlatform", 0, result) : NULL;
#define DO_SET(ret, call, ...) \
    ret result = call; \
    if (result == CL_SUCCESS && !within) note_argument(__VA_ARGS__); \
    return result;
#define SET(name, params, args) TWICE(DO_SET, cl_int, CL_INVALID_OPERATION, name, params, args, k, index, size, value)

#define ASK(name, params, args, asked) TWICE(DO_ASK, void *, NULL, name, params, args, asked)

#include "opencl.def"

/* ---- for every other way to them ------------------------------------------------------------------------ */

const struct hw_hook hw_opencl_hooks[] = {
#define HOOK(ret, name, params, args) {#name, (void *)name, (void **)&real_##name, &calls_##name},
#include "opencl.def"
};

const size_t hw_opencl_hook_count = sizeof hw_opencl_hooks / sizeof *hw_opencl_hooks;
HW_KNOWS("OpenCL", CL_TARGET_OPENCL_VERSION)

/* A program may come with more than one loader. */
#define LOADERS 4
static cl_icd_dispatch tables[LOADERS];
static hw_u32 loaders;

cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void *value, size_t *needed) {
    static const char name[] = "Headway";
    static const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (what != CL_LAYER_API_VERSION && what != CL_LAYER_NAME) return CL_INVALID_VALUE;
    const void *answer = what == CL_LAYER_NAME ? (const void *)name : &version;
    size_t length = what == CL_LAYER_NAME ? sizeof name : sizeof version;
    if (value && size < length) return CL_INVALID_VALUE;
    if (value) memcpy(value, answer, length);
    if (needed) *needed = length;
    return CL_SUCCESS;
}

/* A loader's table may be shorter or longer than the one we know; a function that it does not have stays so. */
cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch *next, cl_uint *count_ret,
                               const cl_icd_dispatch **ours_ret) {
    if (!next || !count_ret || !ours_ret) return CL_INVALID_VALUE;
    cl_uint known = sizeof target / sizeof(void *);
    size_t size = (count < known ? count : known) * sizeof(void *);
    cl_icd_dispatch after = {0};
    memcpy(&after, next, size);
    if (!after.clFinish || after.clFinish == layer_clFinish) return CL_INVALID_OPERATION; /* we are there already */
    cl_uint number = hw_add(&loaders, 1) - 1;
    if (number >= LOADERS) return CL_OUT_OF_RESOURCES;
    cl_icd_dispatch *ours = &tables[number];
    *ours = after;
#define HOOK(ret, name, params, args) \
    if (after.name) ours->name = layer_##name;
#include "opencl.def"
    if (!hw_load(&layered)) {
        target = after;
#define TOOL(name) tools.name = after.name;
        TOOLS
#undef TOOL
        hw_store_release(&layered, true);
    }
    hw_survey_hooked("clInitLayer", "OPENCL_LAYERS");
    *count_ret = (cl_uint)(size / sizeof(void *));
    *ours_ret = ours;
    return CL_SUCCESS;
}

#else

const struct hw_hook hw_opencl_hooks[1];
const size_t hw_opencl_hook_count = 0;

#endif
