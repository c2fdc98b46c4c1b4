#define _GNU_SOURCE
#include "contexts.h"
#include "loader.h"
#include "own.h"
#include "turn.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"
#define KNOWN 64
#define LEGACY ((void *)1)
#define OF_CONTEXT 1u /* the lane of a context's default stream is called as the context, with this bit */
#define PER_THREAD 2u /* and that of each thread's own has this one */

static hw_int made;             /* by the program itself */
static hw_pointer first;        /* the context whose default stream is called as ever */
static _Thread_local void *meant;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *context;
    int device;
} known[KNOWN];
static unsigned next_known;

static struct driver {
    int (*count)(int *), (*current)(void **), (*push)(void *), (*pop)(void **), (*device)(int *), (*of)(void *, void **);
    int (*name)(char *, int, int), (*uuid)(unsigned char *, int), (*place)(char *, int, int);
} cu;

static void *find(const char *newest, const char *name) {
    void *found = newest ? hw_find_in(LIBRARY, newest) : NULL;
    return found ? found : hw_find_in(LIBRARY, name);
}

static bool has_driver(void) {
    static hw_int found;
    if (hw_load_acquire(&found)) return cu.current;
    cu.count = find(NULL, "cuDeviceGetCount");
    cu.push = find("cuCtxPushCurrent_v2", "cuCtxPushCurrent");
    cu.pop = find("cuCtxPopCurrent_v2", "cuCtxPopCurrent");
    cu.device = find(NULL, "cuCtxGetDevice");
    cu.of = find(NULL, "cuStreamGetCtx");
    cu.name = find(NULL, "cuDeviceGetName");
    cu.uuid = find("cuDeviceGetUuid_v2", "cuDeviceGetUuid");
    cu.place = find(NULL, "cuDeviceGetPCIBusId");
    cu.current = find(NULL, "cuCtxGetCurrent");
    hw_store_release(&found, true);
    return cu.current;
}

static void *current(void) {
    void *context = NULL;
    return has_driver() && !cu.current(&context) ? context : NULL;
}

/* Before the driver is there nothing can be said, and nothing has to be. */
static bool has_several(void) {
    int count = 0;
    if (hw_load(&hw_contexts) == HW_NOT_KNOWN && has_driver() && cu.count && !cu.count(&count))
        hw_store(&hw_contexts, count > 1 || hw_load(&made) > 1 ? HW_CONTEXTS : HW_ONE_CONTEXT);
    return hw_load(&hw_contexts) == HW_CONTEXTS;
}

void hw_context_made(void) {
    if (hw_add(&made, 1) < 2 || hw_load(&hw_contexts) != HW_ONE_CONTEXT) return;
    hw_store(&first, current());
    hw_store(&hw_contexts, HW_CONTEXTS);
}

void hw_context_retained(void) {
    static hw_int retained;
    if (!hw_exchange_full(&retained, true)) hw_context_made();
}

void hw_contexts_forget(void) {
    HW_HOLD(&lock);
    memset(known, 0, sizeof known);
}

static int ask_device(void *context) {
    int device = 0;
    void *popped;
    if (!cu.push || !cu.pop || !cu.device || cu.push(context)) return 0;
    if (cu.device(&device)) device = 0;
    cu.pop(&popped);
    return device;
}

static int device_of(void *context) {
    HW_HOLD(&lock);
    for (unsigned i = 0; i < KNOWN; i++)
        if (known[i].context == context) return known[i].device;
    int device = ask_device(context);
    known[next_known].context = context;
    known[next_known].device = device;
    next_known = (next_known + 1) % KNOWN;
    return device;
}

static void use(void *context) {
    meant = context;
    if (context) hw_turn_device((uint32_t)device_of(context));
}

static bool is_name(const void *stream) { return (uintptr_t)stream <= PER_THREAD; }

static bool is_thread_own(const void *lane) { return (uintptr_t)lane > 15 && (uintptr_t)lane & PER_THREAD; }

static void *owner_of(void *stream) {
    void *context = NULL;
    return cu.of && !cu.of(stream, &context) && context ? context : current();
}

bool hw_is_default(const void *lane) {
    return lane == LEGACY || ((uintptr_t)lane > 15 && ((uintptr_t)lane & (OF_CONTEXT | PER_THREAD)) == OF_CONTEXT);
}

void *hw_context_lane(void *stream, void *legacy) {
    if (!has_several()) return is_name(stream) ? legacy : stream;
    HW_OWN;
    void *context = is_name(stream) ? current() : owner_of(stream);
    use(context);
    if (!is_name(stream)) return stream;
    if (legacy != LEGACY || !context || context == hw_load(&first)) return legacy;
    return (void *)((uintptr_t)context | OF_CONTEXT);
}

void hw_context_named(void *context) {
    if (!hw_has_contexts() || !has_several()) return;
    HW_OWN;
    use(context);
}

void hw_context_current(void) {
    if (!hw_has_contexts() || !has_several()) return;
    HW_OWN;
    use(current());
}

/* Of a device's primary context nothing but its lanes may be known here; whatever else is on it is meant as well. */
void hw_context_of_device(int device) {
    if (!hw_has_contexts() || !has_several()) return;
    meant = NULL;
    hw_turn_device((uint32_t)device);
}

static void *context_of(void *lane) {
    if (lane == LEGACY) return hw_load(&first);
    if (is_thread_own(lane)) return NULL;
    if (hw_is_default(lane)) return (void *)((uintptr_t)lane & ~(uintptr_t)OF_CONTEXT);
    return owner_of(lane);
}

bool hw_context_is_meant(void *lane) {
    if (!hw_has_contexts() || !has_several() || !meant) return true;
    void *context = context_of(lane);
    return !context || context == meant;
}

struct hw_visit hw_visit_begin(void *lane) {
    struct hw_visit visit = {false};
    if (!hw_has_contexts() || !has_several()) return visit;
    void *context = context_of(lane);
    visit.came = context && context != current() && cu.push && cu.pop && !cu.push(context);
    return visit;
}

void hw_visit_end(const struct hw_visit *visit) {
    void *popped;
    if (visit->came) cu.pop(&popped);
}

void hw_context_identify(struct hw_channel *c) {
    unsigned char id[16];
    int device = 0;
    if (!has_driver() || !cu.device || cu.device(&device)) return;
    if (cu.name && cu.name(c->model, sizeof c->model, device)) c->model[0] = 0;
    if (cu.place && cu.place(c->pci, sizeof c->pci, device)) c->pci[0] = 0;
    if (!cu.uuid || cu.uuid(id, device)) return;
    char *to = c->uuid + sprintf(c->uuid, "GPU");
    for (int i = 0; i < 16; i++) to += sprintf(to, i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
}
