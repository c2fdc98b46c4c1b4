/* Headway's interposer for OpenGL, OpenGL ES, EGL and GLX: forms groups and takes them to the gate.
 *
 * A group is what the program lets go to the GPU between two submission points. It waits late, at the
 * submission, when the work is about to reach the GPU. The functions are declared in hooks.def. */
#define _GNU_SOURCE
#include "device.h"
#include "follow.h"
#include "gate.h"
#include "loader.h"
#ifdef HW_PREDICT
#define HW_SEE_LINKAGE __attribute__((weak, visibility("hidden")))
#include "monitor.h"
#include "see.h"
#endif
#include "own.h"
#include "server.h"
#include "survey.h"
#include "types.h"
#include "vulkan.h"
#include "words.h"
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define GL_SCISSOR_TEST 0x0C11
#define GL_SYNC_GPU_COMMANDS_COMPLETE 0x9117
#define GL_SYNC_FLUSH_COMMANDS_BIT 1
#define GL_VIEWPORT 0x0BA2
#define GL_SCISSOR_BOX 0x0C10
#define GL_RENDERER 0x1F01
#define GL_VERSION 0x1F02
#define GL_COMPILE 0x1300
#define GL_PIXEL_PACK_BUFFER 0x88EB
#define GL_MAP_READ_BIT 1
#define GL_READ_ONLY 0x88B8
#define GL_READ_WRITE 0x88BA
#define GL_QUERY_RESULT 0x8866

enum { CLASS_PIXELS, CLASS_VERTICES };

/* ---- groups -------------------------------------------------------------------------------- */

static _Thread_local struct hw_channel *current;
static _Thread_local int inside; /* a driver that calls back through us is not the program */
static pthread_key_t ends;        /* of threads that use a channel */

static uint64_t hw_area(int64_t width, int64_t height) {
    return (uint64_t)(width < 0 ? -width : width) * (uint64_t)(height < 0 ? -height : height);
}

/* Counts below 0 are refused by the driver. */
static uint64_t hw_product(int a, int b) { return a < 0 || b < 0 ? 0 : (uint64_t)a * (uint64_t)b; }

static uint64_t hw_box(int a, int b, int c) {
    uint64_t area = hw_product(a, b);
    if (c < 0 || !area) return 0;
    return (uint64_t)c > UINT64_MAX / 2 / area ? UINT64_MAX / 2 : area * (uint64_t)c;
}

static uint64_t hw_pixels(void) {
    const struct hw_channel *c = current;
    if (!c) return 1;
    if (c->scissored) return hw_area(c->scissor_width, c->scissor_height);
    return hw_area(c->viewport_width, c->viewport_height);
}

static void hw_note_viewport(int width, int height) {
    if (!current || current->compiling) return;
    current->viewport_width = width;
    current->viewport_height = height;
}

static void hw_note_scissor(int width, int height) {
    if (!current || current->compiling) return;
    current->scissor_width = width;
    current->scissor_height = height;
}

static void hw_note_enable(GLenum capability, int on) {
    if (current && !current->compiling && capability == GL_SCISSOR_TEST) current->scissored = on;
}

static void hw_note_buffer(GLenum target, GLuint buffer) {
    if (current && target == GL_PIXEL_PACK_BUFFER) current->packing = buffer != 0;
}

static bool hw_packs(void) { return current && current->packing; }

/* Between glBegin and glEnd nothing may be flushed. */
static void hw_note_begin(void) {
    if (current && !current->compiling) current->drawing = true;
}

/* What is compiled into a display list is no work yet; its size is that of every call of the list. */
static void hw_note_list(GLuint list, GLenum mode) {
    if (!current) return;
    current->compiling = mode == GL_COMPILE;
    current->list = list;
    current->list_units[list % HW_LISTS] = 0;
}

static void hw_note_list_end(void) {
    if (!current) return;
    current->compiling = false;
    current->list = 0;
}

static uint64_t hw_list_units(GLuint list) {
    return current ? current->list_units[list % HW_LISTS] + 1 : 1;
}

/* ---- the context monitor (monitor.h), where this library has one --------------------------------- */

#ifdef HW_PREDICT
/* The program itself called something, and the state that it changed is followed. */
static bool watching(void) { return hw_monitor && !inside && !(current && current->compiling); }
#define SEE(name, args) \
    do { \
        if (hw_see_##name && watching()) hw_see_##name args; \
    } while (0)
#define SEE_WORK(name, args, size) \
    do { \
        if (!watching()) break; \
        hw_monitor->handled = false; \
        if (hw_see_##name) hw_see_##name args; \
        if (!hw_monitor->handled) hw_monitor_other(METHOD_##name, (uint64_t)(size)); \
    } while (0)
/* Contexts are made while none is current, too. */
#define SEE_RESULT(name, args, result) \
    do { \
        hw_seen_result = (uintptr_t)(result); \
        if (hw_see_##name && !inside && (hw_monitor || #name[0] != 'g' || #name[2] == 'X')) hw_see_##name args; \
    } while (0)

static void watch_group(struct hw_channel *c) {
    c->features = hw_monitor ? &hw_monitor->features : NULL;
    hw_monitor_page = hw_daemon_of(c);
    if (hw_monitor) hw_features_begin(&hw_monitor->features, hw_monitor_page);
}

static bool watched_cost(const struct hw_channel *c, uint64_t *ns) { return c->features && hw_features_cost(c->features, ns); }
static void watch_context(void *context) { hw_monitor_bound(context); }
static void watch_end(void *context) { hw_monitor_ended(context); }
static void watch_frame(void) {
    if (watching()) hw_monitor_frame();
}
static void watch_surface(const GLint viewport[4], const GLint scissor[4]) {
    hw_monitor_knows((struct hw_rectangle){viewport[0], viewport[1], viewport[2], viewport[3]},
                     (struct hw_rectangle){scissor[0], scissor[1], scissor[2], scissor[3]});
}
#else
#define SEE(name, args) (void)0
#define SEE_WORK(name, args, size) (void)0
#define SEE_RESULT(name, args, result) (void)0
static void watch_group(struct hw_channel *c) { (void)c; }
static bool watched_cost(const struct hw_channel *c, uint64_t *ns) { return (void)c, (void)ns, false; }
static void watch_context(void *context) { (void)context; }
static void watch_end(void *context) { (void)context; }
static void watch_frame(void) {}
static void watch_surface(const GLint viewport[4], const GLint scissor[4]) { (void)viewport, (void)scissor; }
#endif

/* The thread ends with its context current, and perhaps in the middle of a call of the driver: that is not to be asked
 * for anything any more. */
static void thread_ended(void *unused) {
    HW_OWN;
    struct hw_channel *c = current;
    (void)unused;
    current = NULL;
    inside = 0;
    watch_context(NULL);
    if (c) hw_channel_abandon(c);
}

static void use(struct hw_channel *c) {
    current = c;
    pthread_setspecific(ends, c);
}

static struct hw_channel *channel(void) {
    if (!hw_gate_enabled() || inside) return NULL;
    if (!current) use(hw_channel_take((void *)pthread_self())); /* a context we did not see */
    return current;
}

static uint64_t mix(uint64_t hash, uint64_t value) { /* FNV-1a over whole words */
    return (hash ^ value) * 0x100000001b3ull;
}

static void begin_group(struct hw_channel *c) {
    c->signature = 0xcbf29ce484222325ull;
    c->units = c->works = c->methods = 0;
    memset(c->class_units, 0, sizeof c->class_units);
    watch_group(c);
}

static uint64_t predicted_ns(const struct hw_channel *c) {
    uint64_t total = 0;
    if (!c->works) return 0;
    if (watched_cost(c, &total)) return total;
    for (int i = 0; i < 2; i++) total += c->class_units[i] * c->rate[i] / 1024;
    return total;
}

static uint64_t split_bound(const struct hw_channel *c) {
    return hw_daemon_of(c) ? hw_load(&hw_daemon_of(c)->split_ns) : 0;
}

/* More than any call draws; sums of so much do not overflow. */
#define SIZE_MOST ((uint64_t)1 << 40)

static void add_work(struct hw_channel *c, uint32_t method, uint64_t size, bool pixels) {
    if ((int64_t)size < 0) size = 0; /* a count below 0, which the driver refuses */
    if (size > SIZE_MOST) size = SIZE_MOST;
    if (c->list) c->list_units[c->list % HW_LISTS] += (uint32_t)size;
    if (c->compiling) return;
    if (!c->works) begin_group(c);
    c->works++;
    c->signature = mix(mix(c->signature, method), size);
    c->units += size;
    /* Drawn pixels are not known; a draw call counts as its vertices and a piece of the viewport. */
    if (pixels) c->class_units[CLASS_PIXELS] += size + 1;
    else c->class_units[CLASS_VERTICES] += size + 100;
    uint32_t i = 0;
    while (i < c->methods && c->matrix[i].method != method) i++;
    if (i < HW_MATRIX) {
        if (i == c->methods) {
            c->methods++;
            c->matrix[i].method = method;
            c->matrix[i].count = 0;
            c->matrix[i].size = 0;
        }
        c->matrix[i].count++;
        c->matrix[i].size += size;
    }
}

/* Correct the learned rates by what a group really took: each class by the same factor. */
static void learn(struct hw_channel *c, uint64_t took_ns) {
    uint64_t expected = predicted_ns(c);
    for (int i = 0; i < 2; i++) {
        if (!c->class_units[i]) continue;
        uint64_t seen = took_ns * 1024 / (c->class_units[0] + c->class_units[1]);
        if (expected) seen = (uint64_t)((double)c->rate[i] * (double)took_ns / (double)expected);
        c->rate[i] = hw_follow(c->rate[i], seen);
    }
    c->learned++;
}

/* Under a lease nothing waits for completion, so now and then one group does, to learn from; but not
 * where nothing is split, for that is what the learned rates are for. */
static bool is_sample(struct hw_channel *c) {
    if (c->learned >= 8 && (!split_bound(c) || c->submit_ns < c->sampled_ns + 100000000ull)) return false;
    c->sampled_ns = c->submit_ns;
    return true;
}

/* ---- wrappers, generated from hooks.def ------------------------------------------------------ */

#define REAL(name) real_##name
#define CALL(name, args) (REAL(name) args)
#define FOUND(name) \
    (REAL(name) || (REAL(name) = (type_##name)hw_resolve(#name, (void *)name, __builtin_return_address(0))))
/* In a wrapper: the program called it. */
#define READY(name) \
    (HW_COUNT(calls_##name), \
     REAL(name) || (REAL(name) = (type_##name)hw_resolve_linked(#name, (void *)name, __builtin_return_address(0))))

enum {
#define WORK(name, params, args, size) METHOD_##name,
#define STATE(name, params, args, note)
#define SUBMIT(ret, name, params, args)
#include "hooks.def"
    METHODS
};

#define WORK(name, params, args, size) \
    typedef void(*type_##name) params; \
    static type_##name real_##name; \
    static hw_u64 *calls_##name; \
    EXPORT void name params;
#define SUBMIT(ret, name, params, args) \
    typedef ret(*type_##name) params; \
    static type_##name real_##name; \
    static hw_u64 *calls_##name; \
    EXPORT ret name params;
#include "hooks.def"

static bool is_pixels(uint32_t method) {
    return method <= METHOD_glBlitNamedFramebuffer;
}

/* ---- completion ---------------------------------------------------------------------------- */

static void delete_fence(GLsync fence) {
    static void (*real)(GLsync);
    if (!real) real = hw_resolve("glDeleteSync", NULL, (void *)delete_fence);
    if (real && fence) real(fence);
}

/* A fence where the context has them: elsewhere the attempt would leave an error for the program. */
static GLsync make_fence(const struct hw_channel *c) {
    if (!c->fences || !FOUND(glFenceSync) || !FOUND(glClientWaitSync)) return NULL;
    return real_glFenceSync(GL_SYNC_GPU_COMMANDS_COMPLETE, 0);
}

/* llvmpipe's thread says that a scene's fence is reached and then gives the fence's mutex back, which by then may be memory
 * of somebody else's, for the driver has let go of the fence. That thread is seldom interrupted just there, but it is. So
 * the last fences are held, more of them than there are scenes in flight (64): it is done with whatever stands before. */
static void hold_fence(struct hw_channel *c) {
    if (!c->hasty) return;
    void **place = &c->held[c->holds++ % HW_HELD];
    delete_fence(*place);
    *place = make_fence(c);
}

/* All but the last: its context may be destroyed, and others of its share group live. */
static void let_go_of_fences(struct hw_channel *c) {
    for (uint32_t i = 0; i < HW_HELD; i++) {
        if (i == (c->holds - 1) % HW_HELD) continue;
        delete_fence(c->held[i]);
        c->held[i] = NULL;
    }
}

static void wait_fence(GLsync fence) {
    real_glClientWaitSync(fence, GL_SYNC_FLUSH_COMMANDS_BIT, 10000000000ull);
    delete_fence(fence);
}

/* Everything submitted so far has been executed when this returns. */
static void wait_done(struct hw_channel *c) {
    GLsync fence = make_fence(c);
    if (fence) wait_fence(fence);
    else if (FOUND(glFinish)) real_glFinish();
    delete_fence(c->pending);
    c->pending = NULL;
    c->pending_ns = c->unfenced_ns = 0;
}

/* Waits for what went under a lease, not for what the program has collected since. */
static void wait_pending(struct hw_channel *c) {
    if (c->pending) wait_fence(c->pending);
    c->pending = NULL;
    c->pending_ns = c->unfenced_ns = 0;
}

/* Under a lease nothing waits; a fence now and then lets a later moment tell whether it is done. One
 * behind every tiny group would cost more than the gate: what a fence may miss is short. */
static void mark_pending(struct hw_channel *c, uint64_t cost_ns, uint64_t bound) {
    if (!bound) { /* nobody else is there: whoever comes meets at most what the driver has queued, once */
        c->pending_ns = c->unfenced_ns = 0;
        return;
    }
    c->pending_ns += cost_ns;
    c->unfenced_ns += cost_ns;
    if (!c->fences) { /* then only finishing keeps the backlog short */
        if (c->pending_ns > 2 * bound) wait_done(c);
        return;
    }
    if (cost_ns && c->unfenced_ns < bound / 8) return;
    delete_fence(c->pending);
    c->pending = make_fence(c);
    c->unfenced_ns = 0;
}

/* ---- the way to the gate and back ------------------------------------------------------------- */

/* Takes the group to the gate; the caller then submits it. */
static struct hw_channel *before(void) {
    struct hw_channel *c = channel();
    if (!c || !c->works || c->drawing) return NULL;
    HW_OWN;
    inside++;
    uint64_t bound = split_bound(c);
    if (hw_gate_owes(c)) {
        wait_pending(c);
        hw_gate_settle(c);
    } else if (bound && c->pending_ns + predicted_ns(c) > 2 * bound) {
        wait_pending(c); /* or whoever wants the GPU next would wait for the whole backlog */
    }
    hw_gate_enter(c);
    return c;
}

static void after(struct hw_channel *c, bool frame, bool done) {
    if (!c) return;
    HW_OWN;
    hold_fence(c);
    if (!done && (hw_gate_must_wait(c) || (c->leased && is_sample(c)))) {
        wait_done(c);
        done = true;
    }
    c->expected_ns = done ? 0 : predicted_ns(c);
    if (!done && c->leased) mark_pending(c, c->expected_ns, split_bound(c));
    hw_gate_leave(c, frame, done);
    if (done) learn(c, c->finish_ns - c->start_ns);
    c->works = 0;
    inside--;
}

/* What went under a lease is waited for, and no longer keeps the GPU from others. */
static void settle_lease(struct hw_channel *c) {
    if (!hw_is_busy(c)) return;
    inside++;
    wait_done(c);
    hw_gate_settle(c);
    inside--;
}

static void split(struct hw_channel *c) {
    uint64_t bound = split_bound(c);
    if (!bound || c->drawing || predicted_ns(c) < bound) return;
    HW_OWN;
    c = before();
    if (c && FOUND(glFlush)) real_glFlush();
    after(c, false, false);
}

/* Another context, or none, is about to be made current: the driver submits what this one has. */
static void leaving(void *context) {
    struct hw_channel *old = current;
    if (!old || inside) return;
    HW_OWN;
    struct hw_channel *c = before();
    if (c && FOUND(glFlush)) real_glFlush();
    after(c, false, false);
    if (context == old->context) return;
    settle_lease(old); /* later nothing could tell when it is done */
    let_go_of_fences(old);
}

static const char *string_of(GLenum what) {
    static const char *(*get_string)(GLenum);
    if (!get_string) get_string = hw_resolve("glGetString", NULL, (void *)string_of);
    const char *found = get_string ? get_string(what) : NULL;
    return found ? found : "";
}

/* Fences came with OpenGL 3.2 and OpenGL ES 3.0. */
static bool has_fences(void) {
    const char *version = string_of(GL_VERSION);
    int major = 0, minor = 0;
    if (!strncmp(version, "OpenGL ES ", 10)) return sscanf(version + 10, "%d", &major) == 1 && major >= 3;
    if (sscanf(version, "%d.%d", &major, &minor) != 2) return false;
    return major > 3 || (major == 3 && minor >= 2);
}

/* What a context starts with depends on its first surface. */
static void get_to_know(struct hw_channel *c) {
    static void (*get)(GLenum, GLint *);
    if (!get) get = hw_resolve("glGetIntegerv", NULL, (void *)get_to_know);
    GLint viewport[4] = {0, 0, 0, 0}, box[4] = {0, 0, 0, 0};
    c->known = true;
    c->fences = has_fences();
    c->hasty = c->fences && !strncmp(string_of(GL_RENDERER), "llvmpipe", 8);
    if (!get) return;
    get(GL_VIEWPORT, viewport);
    c->viewport_width = viewport[2];
    c->viewport_height = viewport[3];
    get(GL_SCISSOR_BOX, box);
    c->scissor_width = box[2];
    c->scissor_height = box[3];
    watch_surface(viewport, box);
}

static void bound(void *context) {
    HW_OWN;
    if (context) hw_device_bound(context);
    if (hw_gate_enabled() && !inside) {
        struct hw_channel *old = current;
        use(context ? hw_channel_take(context) : NULL);
        if (old) hw_channel_drop(old);
        watch_context(context);
        if (current && !current->known) get_to_know(current);
    }
}

static void ended(void *context) {
    HW_OWN;
    if (context) hw_device_ended(context);
    if (context && hw_gate_enabled()) hw_channel_end(context);
    if (context) watch_end(context);
}

static void show_frame(void) {
    struct hw_channel *c = channel();
    if (!c) return;
    watch_frame();
    c->drawing = false; /* a glBegin that was refused has no glEnd */
    hw_gate_frame(c);
}

static void count_implicit(void) {
    struct hw_channel *c = channel();
    if (c && c->works && hw_page_of(c)) hw_count(&hw_page_of(c)->implicit, 1);
}

#define WORK(name, params, args, size) \
    void name params { \
        if (!READY(name)) return; \
        CALL(name, args); \
        struct hw_channel *own = channel(); \
        if (own) { \
            if (METHOD_##name == METHOD_glEnd) own->drawing = false; \
            add_work(own, METHOD_##name, (uint64_t)(size), is_pixels(METHOD_##name)); \
            SEE_WORK(name, args, size); \
            split(own); \
        } \
    }
#define STATE(name, params, args, note) \
    void name params { \
        if (!READY(name)) return; \
        CALL(name, args); \
        note; \
        SEE(name, args); \
    }
/* For calls that may return nothing: cleanup runs after the call, whatever it returns. */
struct going {
    struct hw_channel *channel;
    bool frame, done, flush;
    uint32_t server; /* of enum hw_server, for a swap on this display */
    struct hw_channel *asking;
    void *display;
};

/* The program is about to ask the window server for its frame to be shown. A server that draws it on
 * the GPU must find that free, and not wait for us while we wait for it. */
static void ask_server(struct going *going, void *display) {
    struct hw_channel *c = going->channel ? going->channel : channel();
    going->server = c ? hw_gate_server(c) : 0;
    if (!going->server) return;
    going->asking = c;
    going->display = display;
    HW_OWN;
    if (going->server & HW_YIELD) {
        if (going->channel) {
            if (FOUND(glFlush)) real_glFlush();
            wait_done(c);
            after(c, true, true);
            going->channel = NULL;
        } else
            settle_lease(c);
    }
    if (going->server & HW_TELL) hw_gate_tell_server(c, true);
}

static void hear_server(struct going *going) {
    if (going->server & HW_AWAIT) {
        hw_round_trip(going->display);
        if (going->channel) wait_done(going->channel); /* the frame is there: this takes no time */
        going->done = true;
    }
    if (going->server & HW_TELL) hw_gate_tell_server(going->asking, false);
}

static void arrive(struct going *going) {
    HW_OWN;
    if (going->channel && going->flush && FOUND(glFlush)) real_glFlush();
    if (going->server) hear_server(going);
    after(going->channel, going->frame, going->done);
}

#define GO(is_frame, is_done) \
    __attribute__((cleanup(arrive))) struct going going = { \
        .channel = before(), .frame = is_frame, .done = is_done}; \
    (void)going

/* Results are needed at once: the group is done when the call returns, unless `later` says that it
 * only goes into a buffer of the GPU. */
#define READ(ret, name, params, args, later) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        GO(false, !(later)); \
        return CALL(name, args); \
    }
#define IMPLICIT(ret, name, params, args, when) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        if (when) count_implicit(); \
        SEE(name, args); \
        return CALL(name, args); \
    }
#define MAP(ret, name, params, args, when) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        if (when) count_implicit(); \
        ret result = CALL(name, args); \
        SEE_RESULT(name, args, result); \
        return result; \
    }
#define MADE(ret, name, params, args) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        ret result = CALL(name, args); \
        SEE_RESULT(name, args, result); \
        return result; \
    }
#define BEFORE(ret, name, params, args) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        SEE(name, args); \
        return CALL(name, args); \
    }
#define SUBMIT(ret, name, params, args) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        GO(false, false); \
        return CALL(name, args); \
    }
/* A fence alone submits nothing; what stands before it has passed the gate, so it goes now. */
#define FENCE(ret, name, params, args) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        GO(false, false); \
        going.flush = true; \
        return CALL(name, args); \
    }
#define SWAP(ret, name, params, args) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        show_frame(); \
        GO(true, false); \
        ask_server(&going, display); \
        return CALL(name, args); \
    }
#define DISPLAY(ret, name, params, args, note) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        ret result = CALL(name, args); \
        note; \
        return result; \
    }
#define BIND(ret, name, params, args, context) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        leaving(context); \
        ret result = CALL(name, args); \
        if (result) bound(context); \
        return result; \
    }
#define END(ret, name, params, args, context) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        ended(context); \
        return CALL(name, args); \
    }

#include "hooks.def"

/* ---- for every other way to them ------------------------------------------------------------ */

const struct hw_hook hw_hooks[] = {
#define WORK(name, params, args, size) {#name, (void *)name, (void **)&real_##name, &calls_##name},
#define SUBMIT(ret, name, params, args) {#name, (void *)name, (void **)&real_##name, &calls_##name},
#include "hooks.def"
};

const size_t hw_hook_count = sizeof hw_hooks / sizeof *hw_hooks;

__attribute__((constructor)) static void begin(void) {
    pthread_key_create(&ends, thread_ended);
    hw_words_begin();
    hw_find_loader();
    hw_gate_init();
    hw_vulkan_begin();
    hw_survey_begin();
    hw_device_init();
}
