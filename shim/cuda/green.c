#define _GNU_SOURCE
#include "green.h"
#include "gate.h"
#include "loader.h"
#include "own.h"
#include "turn.h"
#include <stddef.h>
#include <string.h>

/* The driver's library, in which its functions are looked for. */
#define LIBRARY "libcuda.so.1"
#define SUCCESS 0
#define NON_BLOCKING 1u
#define UNTIMED 2u
#define OWN_STREAM 1u /* a green context is made with a default stream: the driver takes no other */
#define SM_RESOURCE 1
#define SM_COUNT 16 /* the attribute of a device */
#define VERSION 12050
/* Streams of a program that are followed, each in each size; devices; and sizes of a device. */
#define SHADOWS 512
#define DEVICES 8
#define SIZES 64
/* What the driver refused to make is not asked for again so soon. */
#define AGAIN_NS 1000000000u

/* CUdevResource, of which this much is read. */
struct resource {
    int type;
    char internal[92];
    struct {
        unsigned sms, least, alignment, flags;
        char more[24];
    } sm;
    void *next;
};

typedef int CUresult;
static struct driver {
    CUresult (*current)(void **), (*device)(int *);
    CUresult (*state)(int, unsigned *, int *), (*retain)(void **, int), (*release)(int);
    CUresult (*resource)(int, struct resource *, int), (*describe)(void **, struct resource *, unsigned);
    CUresult (*split)(struct resource *, unsigned *, const struct resource *, struct resource *, unsigned, unsigned);
    CUresult (*make)(void **, void *, int, unsigned), (*end)(void *);
    CUresult (*make_stream)(void **, void *, unsigned, int), (*end_stream)(void *);
    CUresult (*context)(void *, void **), (*priority)(void *, int *), (*query)(void *), (*synchronize)(void *);
    CUresult (*make_event)(void **, unsigned), (*end_event)(void *);
    CUresult (*record)(void *, void *), (*wait)(void *, void *, unsigned);
} cu;

/* A device whose primary context the program uses, and what of it was made. */
struct device {
    void *context; /* NULL: the place is free */
    int number;
    unsigned sms, least, step;
    struct resource whole;
    struct {
        unsigned sms;
        void *context;
    } green[SIZES];
    unsigned greens;
};

/* The stream that a stream of the program has in a green context. */
struct shadow {
    void *from;     /* the program's; NULL: it is gone, and this waits for another one */
    void *context;  /* that it is in */
    uint32_t thread; /* whose it is, if each thread has one of its own by this name; else 0 */
    struct device *device; /* NULL: the place is free */
    unsigned sms;
    int priority;
    void *stream;
    void *before; /* recorded in the program's stream: what the work waits for */
    void *after;  /* recorded in this one: what the program's stream waits for */
    hw_int users; /* launches that are on their way; no other stream may get it meanwhile */
    uint64_t used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device devices[DEVICES];
static struct shadow shadows[SHADOWS];
static unsigned shadow_count;
static uint64_t uses;
static uint64_t again_ns; /* when what was refused may be asked for again */
static bool making;         /* a thread makes something, which takes a millisecond: the others do not wait for that */
static hw_u32 asked, own;   /* the program asked for the number of multiprocessors; it makes green contexts itself */
static hw_u32 retained[DEVICES]; /* how often the program holds the primary context of the device with this number */
static _Thread_local uint32_t thread;

/* ---- the driver -------------------------------------------------------------------------------- */

static void *find(const char *name) {
    static CUresult (*look_up)(const char *, void **, int, uint64_t);
    void *found = hw_find_in(LIBRARY, name);
    if (!look_up) look_up = hw_find_in(LIBRARY, "cuGetProcAddress");
    if (!found && (!look_up || look_up(name, &found, VERSION, 0) != SUCCESS)) found = NULL;
    return found;
}

/* With the lock. */
static bool find_driver(void) {
    static const struct {
        const char *name;
        size_t place;
    } names[] = {
#define FIND(name, member) {name, offsetof(struct driver, member)}
        FIND("cuCtxGetCurrent", current), FIND("cuCtxGetDevice", device),
        FIND("cuDevicePrimaryCtxGetState", state), FIND("cuDevicePrimaryCtxRetain", retain),
        FIND("cuDevicePrimaryCtxRelease_v2", release), FIND("cuDeviceGetDevResource", resource),
        FIND("cuDevResourceGenerateDesc", describe), FIND("cuDevSmResourceSplitByCount", split),
        FIND("cuGreenCtxCreate", make), FIND("cuGreenCtxDestroy", end),
        FIND("cuGreenCtxStreamCreate", make_stream), FIND("cuStreamDestroy_v2", end_stream),
        FIND("cuStreamGetCtx", context), FIND("cuStreamGetPriority", priority), FIND("cuStreamQuery", query),
        FIND("cuStreamSynchronize", synchronize), FIND("cuEventCreate", make_event),
        FIND("cuEventDestroy_v2", end_event), FIND("cuEventRecord", record), FIND("cuStreamWaitEvent", wait),
    };
    static bool tried, found;
    if (tried) return found;
    tried = found = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *function = find(names[i].name);
        memcpy((char *)&cu + names[i].place, &function, sizeof function);
        found &= function != NULL;
    }
    return found;
}

/* ---- devices ------------------------------------------------------------------------------------ */

/* In a forked child the driver is of no use, and nothing of this is there. */
static void in_child(void) {
    pthread_mutex_init(&lock, NULL);
    memset(devices, 0, sizeof devices);
    memset(shadows, 0, sizeof shadows);
    shadow_count = 0;
    making = false;
}

static unsigned smallest(const struct resource *whole, unsigned at_least) {
    struct resource part;
    unsigned groups = 1;
    memset(&part, 0, sizeof part);
    return cu.split(&part, &groups, whole, NULL, 0, at_least) == SUCCESS && groups ? part.sm.sms : 0;
}

/* Green contexts belong to a device's primary context, and so must the work that goes there. */
static bool is_primary(void *context, int number) {
    void *primary = NULL;
    unsigned flags;
    int active = 0;
    if (cu.state(number, &flags, &active) != SUCCESS || !active || cu.retain(&primary, number) != SUCCESS) return false;
    cu.release(number);
    return primary == context;
}

/* Looks at the device of the current context, which nobody has looked at yet. */
static uint32_t look_at(struct device *device, void *context) {
    struct device found = {.context = context};
    if (cu.device(&found.number) != SUCCESS || !is_primary(context, found.number)) return HW_OTHER_CONTEXT;
    if (cu.resource(found.number, &found.whole, SM_RESOURCE) != SUCCESS) return HW_NO_GREEN;
    found.sms = found.whole.sm.sms;
    found.least = smallest(&found.whole, 1);
    if (!found.least || found.least >= found.sms) return HW_NO_GREEN;
    unsigned next = smallest(&found.whole, found.least + 1);
    found.step = next > found.least ? next - found.least : found.sms - found.least;
    *device = found;
    return 0;
}

/* How many multiprocessors that share is: no more than it says, unless the device has no smaller part. */
static unsigned sms_of(const struct device *device, uint32_t permille) {
    unsigned most = (unsigned)((uint64_t)device->sms * permille / 1000);
    return most <= device->least ? device->least : most - (most - device->least) % device->step;
}

static void *green_of(struct device *device, unsigned sms) {
    void *described = NULL, *made = NULL;
    for (unsigned i = 0; i < device->greens; i++)
        if (device->green[i].sms == sms) return device->green[i].context;
    struct resource part;
    unsigned groups = 1;
    memset(&part, 0, sizeof part);
    if (device->greens == SIZES || cu.split(&part, &groups, &device->whole, NULL, 0, sms) != SUCCESS || !groups ||
        part.sm.sms != sms || cu.describe(&described, &part, 1) != SUCCESS ||
        cu.make(&made, described, device->number, OWN_STREAM) != SUCCESS)
        return NULL;
    device->green[device->greens].sms = sms;
    device->green[device->greens++].context = made;
    return made;
}

/* With the lock. NULL: nobody looked at it. */
static struct device *device_of(const void *context) {
    for (int i = 0; i < DEVICES; i++)
        if (devices[i].context == context) return &devices[i];
    return NULL;
}

/* ---- shadows ------------------------------------------------------------------------------------ */

/* What a launch is known by. */
struct key {
    void *from, *context;
    uint32_t thread;
};

static bool is_of(const struct shadow *shadow, const struct key *key) {
    return shadow->from == key->from && shadow->thread == key->thread && shadow->context == key->context;
}

/* With the lock: nothing is in flight there, so whatever gets it waits for nobody else's work. */
static bool is_free(const struct shadow *shadow) {
    return !hw_load(&shadow->users) && cu.query(shadow->stream) == SUCCESS;
}

/* With the lock. */
static struct shadow *known(const struct key *key, unsigned sms) {
    for (unsigned i = 0; i < shadow_count; i++)
        if (shadows[i].sms == sms && is_of(&shadows[i], key)) return &shadows[i];
    return NULL;
}

/* With the lock: one of a stream that is gone, or, of very many, of the one that was not used for longest. */
static struct shadow *spare(const struct device *device, unsigned sms, int priority) {
    struct shadow *oldest = NULL;
    for (unsigned i = 0; i < shadow_count; i++) {
        struct shadow *s = &shadows[i];
        bool fits = s->device == device && s->sms == sms && s->priority == priority;
        if (!fits || (s->from && shadow_count < SHADOWS) || !is_free(s)) continue;
        if (!s->from) return s;
        if (!oldest || s->used < oldest->used) oldest = s;
    }
    return oldest;
}

static void unmake(struct shadow *s) {
    if (s->stream) cu.end_stream(s->stream);
    if (s->before) cu.end_event(s->before);
    if (s->after) cu.end_event(s->after);
}

static bool make_shadow(struct shadow *made, struct device *device, unsigned sms, int priority) {
    void *green = green_of(device, sms);
    *made = (struct shadow){.device = device, .sms = sms, .priority = priority};
    if (green && cu.make_stream(&made->stream, green, NON_BLOCKING, priority) == SUCCESS &&
        cu.make_event(&made->before, UNTIMED) == SUCCESS && cu.make_event(&made->after, UNTIMED) == SUCCESS)
        return true;
    unmake(made);
    return false;
}

/* Places stay where they are, for launches may be on their way to them. */
static struct shadow *empty_place(void) {
    HW_HOLD(&lock);
    for (unsigned i = 0; i < shadow_count; i++)
        if (!shadows[i].device) return &shadows[i];
    return shadow_count < SHADOWS ? &shadows[shadow_count++] : NULL;
}

/* Makes what is missing, without the lock: `making` keeps others from it. Why not, or 0. */
static uint32_t make(const struct key *key, uint32_t permille) {
    struct device *device;
    struct shadow made, *place = NULL, *empty = NULL;
    void *context = NULL;
    int priority = 0;
    uint32_t why = 0;
    {
        HW_HOLD(&lock);
        device = device_of(key->context);
        if (!device) device = device_of(NULL);
    }
    if (!device) return HW_NO_ROOM_LEFT;
    if (!device->context && (why = look_at(device, key->context))) return why;
    unsigned sms = sms_of(device, permille);
    if (sms >= device->sms) return 0;
    if (cu.context(key->from, &context) != SUCCESS || context != key->context) return HW_OTHER_CONTEXT;
    if (cu.priority(key->from, &priority) != SUCCESS) priority = 0;
    {
        HW_HOLD(&lock);
        place = spare(device, sms, priority);
        if (place) place->from = NULL, place->context = NULL;
    }
    if (!place && !(empty = empty_place())) return HW_NO_ROOM_LEFT;
    if (!place && !make_shadow(&made, device, sms, priority)) return HW_NO_GREEN;
    HW_HOLD(&lock);
    if (!place) *(place = empty) = made;
    place->context = key->context;
    place->thread = key->thread;
    place->from = key->from;
    return 0;
}

/* With the lock: the one that the launch goes to, which stays as it is until it is let go. */
static struct shadow *use(const struct key *key, uint32_t permille) {
    const struct device *device = device_of(key->context);
    unsigned sms = device && device->sms ? sms_of(device, permille) : 0;
    struct shadow *found = sms ? known(key, sms) : NULL;
    if (!found) return NULL;
    found->used = ++uses;
    hw_add(&found->users, 1);
    return found;
}

static struct shadow *take(const struct key *key, uint32_t permille, uint32_t *why) {
    struct shadow *found;
    {
        HW_HOLD(&lock);
        found = use(key, permille);
        if (found || making || hw_now() < again_ns) return found;
        making = true;
    }
    *why = make(key, permille);
    HW_HOLD(&lock);
    making = false;
    if (*why == HW_NO_GREEN) again_ns = hw_now() + AGAIN_NS;
    return *why ? NULL : use(key, permille);
}

/* ---- green contexts of the program's own ------------------------------------------------------------------ */

/* What was found of a stream, until a stream ends. */
#define SEEN 16
static hw_u32 ended_streams;

/* Which share of the multiprocessors a stream has in a green context that the program made; 0: it is in none, or
 * nobody can say. */
static uint32_t own_share(void *stream) {
    static CUresult (*green_of_stream)(void *, void **), (*resource_of)(void *, struct resource *, int);
    static bool tried;
    static _Thread_local struct {
        void *stream;
        uint32_t ended, permille;
    } seen[SEEN];
    if (!tried) {
        HW_HOLD(&lock);
        green_of_stream = find("cuStreamGetGreenCtx");
        resource_of = find("cuGreenCtxGetDevResource");
        tried = true;
    }
    uint32_t ended = hw_load(&ended_streams) + 1; /* 0: nothing was seen yet */
    unsigned place = (unsigned)((uintptr_t)stream >> 4) % SEEN;
    if (seen[place].stream == stream && seen[place].ended == ended) return seen[place].permille;
    struct resource part, whole;
    void *green = NULL;
    int number;
    uint32_t permille = 0;
    memset(&part, 0, sizeof part);
    memset(&whole, 0, sizeof whole);
    if (green_of_stream && resource_of && green_of_stream(stream, &green) == SUCCESS && green &&
        resource_of(green, &part, SM_RESOURCE) == SUCCESS && cu.device(&number) == SUCCESS &&
        cu.resource(number, &whole, SM_RESOURCE) == SUCCESS && whole.sm.sms)
        permille = part.sm.sms * 1000 / whole.sm.sms;
    seen[place].stream = stream;
    seen[place].ended = ended;
    return seen[place].permille = permille;
}

/* ---- launches ------------------------------------------------------------------------------------ */

static bool has_driver(void) {
    static bool forks;
    HW_HOLD(&lock);
    if (!forks) forks = !pthread_atfork(NULL, NULL, in_child);
    return forks && find_driver();
}

static unsigned sms_in(const void *context) {
    HW_HOLD(&lock);
    const struct device *device = device_of(context);
    return device ? device->sms : 0;
}

/* What the launch is known by, if it may be confined; else why not. */
static bool key_of(struct key *key, void *from, bool own_thread, uint32_t *why) {
    static hw_u32 threads;
    *key = (struct key){.from = from};
    if (hw_load(&own)) *why = HW_OWN_GREEN;
    else if (!has_driver()) *why = HW_NO_GREEN;
    else if (cu.current(&key->context) != SUCCESS || !key->context) *why = HW_OTHER_CONTEXT;
    if (own_thread && !thread) thread = hw_add(&threads, 1);
    key->thread = own_thread ? thread : 0;
    return !*why;
}

bool hw_green_leave(struct hw_away *away, void *from, bool own_thread, const void *kernel, uint64_t blocks,
                    const struct hw_attribute *attributes, unsigned count) {
    uint32_t permille = hw_turn_share(), why = 0;
    struct key key;
    *away = (struct hw_away){.from = from};
    if (!permille || hw_turn_inside() || hw_load(&hw_fast.recorded)) return false;
    HW_OWN;
    if (hw_load(&own) && has_driver()) {
        uint32_t kept = own_share(from);
        if (kept && kept <= permille) {
            hw_turn_confined(kept);
            return false;
        }
    }
    if (key_of(&key, from, own_thread, &why)) away->shadow = take(&key, permille, &why);
    struct shadow *shadow = away->shadow;
    if (why) hw_turn_unconfined(why);
    if (!shadow) {
        hw_turn_whole();
        return false;
    }
    if (hw_needs_whole(kernel, blocks, attributes, count, sms_in(key.context), hw_load(&asked))) hw_turn_whole();
    else if (cu.record(shadow->before, from) == SUCCESS && cu.wait(shadow->stream, shadow->before, 0) == SUCCESS) {
        away->stream = shadow->stream;
        return true;
    }
    hw_add(&shadow->users, -1);
    away->shadow = NULL;
    return false;
}

bool hw_green_return(struct hw_away *away, int result) {
    struct shadow *shadow = away->shadow;
    bool went = result == SUCCESS;
    HW_OWN;
    if (went && (cu.record(shadow->after, shadow->stream) != SUCCESS ||
                 cu.wait(away->from, shadow->after, 0) != SUCCESS))
        cu.synchronize(shadow->stream);
    if (went) hw_turn_confined(shadow->sms * 1000 / shadow->device->sms);
    else hw_turn_whole();
    hw_add(&shadow->users, -1);
    return went;
}

void hw_green_whole(void) {
    if (hw_turn_share() && !hw_turn_inside()) hw_turn_whole();
}

/* ---- what a program may ask itself --------------------------------------------------------------------- */

__attribute__((visibility("default"))) uint32_t headway_share(void);

/* Which share of the multiprocessors it may use, in thousandths; 0: all. */
uint32_t headway_share(void) { return hw_turn_share(); }

/* ---- what the program does ------------------------------------------------------------------------- */

void hw_green_asks(int attribute) {
    if (attribute == SM_COUNT) hw_store(&asked, 1);
}

void hw_green_makes_own(void) { hw_store(&own, 1); }

void hw_green_ends_stream(void *stream) {
    hw_add(&ended_streams, 1);
    HW_HOLD(&lock);
    for (unsigned i = 0; i < shadow_count; i++)
        if (shadows[i].from == stream) shadows[i].from = NULL;
}

/* With the lock. */
static void forget(struct device *device) {
    for (unsigned i = 0; i < shadow_count; i++)
        if (shadows[i].device == device) shadows[i].device = NULL, shadows[i].from = NULL;
    memset(device, 0, sizeof *device);
}

void hw_green_forgets(int number) {
    HW_HOLD(&lock);
    for (int i = 0; i < DEVICES && !making; i++)
        if (devices[i].context && devices[i].number == number) forget(&devices[i]);
}

void hw_green_retains(int number) {
    if (number >= 0 && number < DEVICES) hw_add(&retained[number], 1);
}

/* With the lock: whether the program holds the primary context no more. Unknown devices and holds count as others. */
static bool is_last(int number) {
    if (number < 0 || number >= DEVICES || !hw_load(&retained[number])) return false;
    return hw_add(&retained[number], -1) == 0;
}

/* Green contexts keep the primary context alive. With the program's last hold they go, whatever waits in them: the
 * program gives up its work, and is told so by whatever it asks of the context. Else they go if nothing is in flight. */
void hw_green_lets_go(int number) {
    HW_HOLD(&lock);
    bool last = is_last(number);
    for (int i = 0; i < DEVICES && !making; i++) {
        struct device *device = &devices[i];
        bool goes = device->context && device->number == number;
        for (unsigned s = 0; s < shadow_count && goes; s++)
            goes = shadows[s].device != device || (last ? !hw_load(&shadows[s].users) : is_free(&shadows[s]));
        if (!goes) continue;
        for (unsigned s = 0; s < shadow_count; s++)
            if (shadows[s].device == device) unmake(&shadows[s]);
        for (unsigned g = 0; g < device->greens; g++) cu.end(device->green[g].context);
        forget(device);
    }
}
