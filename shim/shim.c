/* Headway's interposer for OpenGL, OpenGL ES, EGL and GLX: forms groups and takes them to the gate.
 *
 * A group is what the program lets go to the GPU between two submission points. It waits late, at the
 * submission, when the work is about to reach the GPU. The functions are declared in hooks.def. */
#define _GNU_SOURCE
#include "device.h"
#include "gate.h"
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

typedef unsigned GLenum, GLbitfield, GLuint;
typedef int GLint, GLsizei;
typedef float GLfloat;
typedef unsigned char GLubyte;
typedef intptr_t GLintptr;
typedef void *GLsync;

#define EXPORT __attribute__((visibility("default")))
#define GL_SCISSOR_TEST 0x0C11
#define GL_SYNC_GPU_COMMANDS_COMPLETE 0x9117
#define GL_SYNC_FLUSH_COMMANDS_BIT 1

enum { CLASS_PIXELS, CLASS_VERTICES };

/* ---- finding the real functions ---------------------------------------------------------- */

static void *(*real_dlsym)(void *, const char *);
static void *(*real_dlopen)(const char *, int);

static void find_loader(void) {
    static const char *versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t i = 0; i < 3 && !(real_dlsym && real_dlopen); i++) {
        if (!real_dlsym) real_dlsym = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        if (!real_dlopen) real_dlopen = dlvsym(RTLD_NEXT, "dlopen", versions[i]);
    }
}

/* A library that was loaded RTLD_LOCAL is not in RTLD_NEXT's scope: ask the caller's own libraries. */
static void *from_caller(const char *name, void *caller) {
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) || !map || !map->l_name) return NULL;
    void *library = real_dlopen(map->l_name[0] ? map->l_name : NULL, RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? real_dlsym(library, name) : NULL;
    if (library) dlclose(library);
    return found;
}

static void *resolve(const char *name, void *own, void *caller) {
    static const char *libraries[] = {"libGL.so.1", "libGLESv2.so.2", "libEGL.so.1", "libGLX.so.0",
                                      "libOpenGL.so.0"};
    if (!real_dlsym) find_loader();
    if (!real_dlsym || !real_dlopen) return NULL;
    void *found = real_dlsym(RTLD_NEXT, name);
    if (!found || found == own) found = from_caller(name, caller);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && (!found || found == own); i++) {
        void *library = real_dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        if (!library) continue;
        found = real_dlsym(library, name);
        dlclose(library);
    }
    return found == own ? NULL : found;
}

/* ---- groups -------------------------------------------------------------------------------- */

static _Thread_local struct hw_channel *current;
static _Thread_local int inside; /* a driver that calls back through us is not the program */
static _Thread_local struct {
    int viewport_width, viewport_height, scissor_width, scissor_height, scissored;
} state;

static uint64_t hw_area(int width, int height) {
    return (uint64_t)(width < 0 ? -width : width) * (uint64_t)(height < 0 ? -height : height);
}

static uint64_t hw_pixels(void) {
    if (state.scissored) return hw_area(state.scissor_width, state.scissor_height);
    return hw_area(state.viewport_width, state.viewport_height);
}

static void hw_note_viewport(int width, int height) {
    state.viewport_width = width;
    state.viewport_height = height;
}

static void hw_note_scissor(int width, int height) {
    state.scissor_width = width;
    state.scissor_height = height;
}

static void hw_note_enable(GLenum capability, int on) {
    if (capability == GL_SCISSOR_TEST) state.scissored = on;
}

static struct hw_channel *channel(void) {
    if (!hw_gate_enabled() || inside) return NULL;
    if (!current) current = hw_channel_for((void *)pthread_self()); /* a context we did not see */
    return current;
}

static uint64_t mix(uint64_t hash, uint64_t value) { /* FNV-1a over whole words */
    return (hash ^ value) * 0x100000001b3ull;
}

static void begin_group(struct hw_channel *c) {
    c->signature = 0xcbf29ce484222325ull;
    c->units = c->works = c->methods = 0;
    memset(c->class_units, 0, sizeof c->class_units);
}

static uint64_t predicted_ns(const struct hw_channel *c) {
    uint64_t total = 0;
    for (int i = 0; i < 2; i++) total += c->class_units[i] * c->rate[i] / 1024;
    return total;
}

static void add_work(struct hw_channel *c, uint32_t method, uint64_t size, bool pixels) {
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
        uint64_t seen = expected ? c->rate[i] * took_ns / expected : 0;
        if (!expected) seen = took_ns * 1024 / (c->class_units[0] + c->class_units[1]);
        c->rate[i] = c->rate[i] ? (c->rate[i] * 7 + seen) / 8 : seen;
        if (!c->rate[i]) c->rate[i] = 1;
    }
}

/* ---- wrappers, generated from hooks.def ------------------------------------------------------ */

#define REAL(name) real_##name
#define CALL(name, args) (REAL(name) args)
#define READY(name) \
    (REAL(name) || (REAL(name) = (type_##name)resolve(#name, (void *)name, __builtin_return_address(0))))

enum {
#define WORK(name, params, args, size) METHOD_##name,
#define SUBMIT(ret, name, params, args)
#define SWAP SUBMIT
#define READ SUBMIT
#define STATE(name, params, args, note)
#define BIND(ret, name, params, args, context)
#define END BIND
#include "hooks.def"
#undef WORK
#undef STATE
#undef SUBMIT
#undef BIND
    METHODS
};

#define WORK(name, params, args, size) \
    typedef void(*type_##name) params; \
    static type_##name real_##name; \
    EXPORT void name params;
#define STATE(name, params, args, note) WORK(name, params, args, 0)
#define SUBMIT(ret, name, params, args) \
    typedef ret(*type_##name) params; \
    static type_##name real_##name; \
    EXPORT ret name params;
#define BIND(ret, name, params, args, context) SUBMIT(ret, name, params, args)
#include "hooks.def"
#undef WORK
#undef STATE
#undef SUBMIT
#undef SWAP
#undef READ
#undef BIND
#undef END

static bool is_pixels(uint32_t method) {
    return method <= METHOD_glClearBufferfi || method == METHOD_glBlitFramebuffer;
}

/* Everything submitted so far has been executed when this returns. */
static void wait_done(void) {
    if (READY(glFenceSync) && READY(glClientWaitSync)) {
        GLsync fence = real_glFenceSync(GL_SYNC_GPU_COMMANDS_COMPLETE, 0);
        if (fence) {
            static void (*delete_sync)(GLsync);
            if (!delete_sync) delete_sync = resolve("glDeleteSync", NULL, (void *)wait_done);
            real_glClientWaitSync(fence, GL_SYNC_FLUSH_COMMANDS_BIT, 10000000000ull);
            if (delete_sync) delete_sync(fence);
            return;
        }
    }
    if (READY(glFinish)) real_glFinish();
}

/* Takes the group to the gate; the caller then submits it. */
static struct hw_channel *before(void) {
    struct hw_channel *c = channel();
    if (!c || !c->works) return NULL;
    inside++;
    hw_gate_enter(c);
    return c;
}

static void after(struct hw_channel *c, bool frame, bool done) {
    if (!c) return;
    if (!done && hw_gate_must_wait(c)) {
        wait_done();
        done = true;
    }
    hw_gate_leave(c, frame, done);
    if (done) learn(c, c->finish_ns - c->submit_ns);
    c->works = 0;
    inside--;
}

static void split(struct hw_channel *c) {
    uint64_t bound = c->daemon ? c->daemon->split_ns : 0;
    if (!bound || predicted_ns(c) < bound) return;
    c = before();
    if (c && READY(glFlush)) real_glFlush();
    after(c, false, false);
}

#define WORK(name, params, args, size) \
    void name params { \
        if (!READY(name)) return; \
        CALL(name, args); \
        struct hw_channel *own = channel(); \
        if (own) { \
            add_work(own, METHOD_##name, (uint64_t)(size), is_pixels(METHOD_##name)); \
            split(own); \
        } \
    }
#define STATE(name, params, args, note) \
    void name params { \
        if (!READY(name)) return; \
        CALL(name, args); \
        note; \
    }
/* For calls that may return nothing: cleanup runs after the call, whatever it returns. */
struct going {
    struct hw_channel *channel;
    bool frame, done;
};

static void arrive(struct going *going) { after(going->channel, going->frame, going->done); }

#define GO(is_frame, is_done) \
    __attribute__((cleanup(arrive))) struct going going = {before(), is_frame, is_done}; \
    (void)going

/* Results are needed at once: the group must be done before the call can return. */
#define READ(ret, name, params, args) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        GO(false, true); \
        return CALL(name, args); \
    }
#define SUBMIT(ret, name, params, args) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        GO(false, false); \
        return CALL(name, args); \
    }
#define SWAP(ret, name, params, args) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        hw_gate_frame(channel()); \
        GO(true, false); \
        return CALL(name, args); \
    }
#define BIND(ret, name, params, args, context) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        ret result; \
        { \
            GO(false, false); \
            result = CALL(name, args); \
        } \
        if (result) bound(context); \
        return result; \
    }
#define END(ret, name, params, args, context) \
    ret name params { \
        if (!READY(name)) return (ret)0; \
        ended(context); \
        return CALL(name, args); \
    }

static void bound(void *context) {
    if (context) hw_device_bound();
    if (hw_gate_enabled()) current = context ? hw_channel_for(context) : NULL;
}

static void ended(void *context) {
    if (!context || !hw_gate_enabled()) return;
    if (current && current->context == context) current = NULL;
    hw_channel_end(context);
}

#include "hooks.def"
#undef WORK
#undef STATE
#undef SUBMIT
#undef SWAP
#undef READ
#undef BIND
#undef END

/* ---- the ways to a function: dlsym, eglGetProcAddress, glXGetProcAddress ------------------------ */

struct hook {
    const char *name;
    void *wrapper;
    void **real;
};

static const struct hook hooks[] = {
#define WORK(name, params, args, size) {#name, (void *)name, (void **)&real_##name},
#define STATE WORK
#define SUBMIT(ret, name, params, args) {#name, (void *)name, (void **)&real_##name},
#define SWAP SUBMIT
#define READ SUBMIT
#define BIND(ret, name, params, args, context) SUBMIT(ret, name, params, args)
#define END BIND
#include "hooks.def"
};

typedef void *(*lookup)(const char *);
static lookup real_eglGetProcAddress, real_glXGetProcAddress, real_glXGetProcAddressARB;
EXPORT void *eglGetProcAddress(const char *name);
EXPORT void *glXGetProcAddress(const unsigned char *name);
EXPORT void *glXGetProcAddressARB(const unsigned char *name);

static const struct hook lookups[] = {
    {"eglGetProcAddress", (void *)eglGetProcAddress, (void **)&real_eglGetProcAddress},
    {"glXGetProcAddress", (void *)glXGetProcAddress, (void **)&real_glXGetProcAddress},
    {"glXGetProcAddressARB", (void *)glXGetProcAddressARB, (void **)&real_glXGetProcAddressARB},
};

static const struct hook *find_hook(const char *name) {
    if (!name || ((name[0] != 'g' || name[1] != 'l') && strncmp(name, "egl", 3))) return NULL;
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (!strcmp(hooks[i].name, name)) return &hooks[i];
    for (size_t i = 0; i < sizeof lookups / sizeof *lookups; i++)
        if (!strcmp(lookups[i].name, name)) return &lookups[i];
    return NULL;
}

/* What a look-up found: ours in its place, if it is hooked and if it exists at all. */
static void *replace(const char *name, void *found) {
    const struct hook *hook = found ? find_hook(name) : NULL;
    if (!hook || found == hook->wrapper) return found;
    if (!*hook->real) *hook->real = found;
    return hook->wrapper;
}

#define LOOK_UP(function, type) \
    void *function(type name) { \
        if (!real_##function) \
            real_##function = (lookup)resolve(#function, (void *)function, __builtin_return_address(0)); \
        return real_##function ? replace((const char *)name, real_##function((const char *)name)) : NULL; \
    }
LOOK_UP(eglGetProcAddress, const char *)
LOOK_UP(glXGetProcAddress, const unsigned char *)
LOOK_UP(glXGetProcAddressARB, const unsigned char *)

/* A look-up in a library: ours if the library has it. NULL: let the real dlsym answer, which looks at
 * who called it, so it must be reached by a jump. */
__attribute__((used, visibility("hidden"))) void *hw_dlsym(void *handle, const char *name) {
    if (!real_dlsym) find_loader();
    if (handle == RTLD_NEXT || !find_hook(name)) return NULL;
    return replace(name, real_dlsym(handle, name));
}

__attribute__((used, visibility("hidden"))) void *hw_real_dlsym(void) { return (void *)real_dlsym; }

#if defined(__x86_64__)
__asm__(".text\n.globl dlsym\n.type dlsym, @function\ndlsym:\n"
        "  push %rdi\n  push %rsi\n  sub $8, %rsp\n"
        "  call hw_dlsym\n"
        "  test %rax, %rax\n  jz 1f\n"
        "  add $24, %rsp\n  ret\n"
        "1: call hw_real_dlsym\n"
        "  add $8, %rsp\n  pop %rsi\n  pop %rdi\n  jmp *%rax\n"
        ".size dlsym, .-dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl dlsym\n.type dlsym, %function\ndlsym:\n"
        "  stp x29, x30, [sp, #-32]!\n  stp x0, x1, [sp, #16]\n"
        "  bl hw_dlsym\n"
        "  cbz x0, 1f\n"
        "  ldp x29, x30, [sp], #32\n  ret\n"
        "1: bl hw_real_dlsym\n  mov x16, x0\n"
        "  ldp x0, x1, [sp, #16]\n  ldp x29, x30, [sp], #32\n  br x16\n"
        ".size dlsym, .-dlsym\n");
#else
#error "dlsym must be reached by a jump: add it for this processor"
#endif

/* RTLD_DEEPBIND would make a library see its own copies first, and the gate would be passed by. */
EXPORT void *dlopen(const char *file, int mode) {
    if (!real_dlopen) find_loader();
    if (!real_dlopen) return NULL;
    if (hw_gate_enabled()) mode &= ~RTLD_DEEPBIND;
    return real_dlopen(file, mode);
}

__attribute__((constructor)) static void begin(void) {
    find_loader();
    hw_gate_init();
    hw_device_init();
}
