/* Finding the real functions, and being found in their place: by dlsym, eglGetProcAddress and
 * glXGetProcAddress. Direct links find the wrappers by themselves. */
#define _GNU_SOURCE
#include "loader.h"
#include "gate.h"
#include "own.h"
#include "survey.h"
#include "vulkan.h"
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- finding the real functions ---------------------------------------------------------- */

static void *(*real_dlsym)(void *, const char *);
static void *(*real_dlopen)(const char *, int);

void hw_find_loader(void) {
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
    if (!caller || !dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP)) return NULL;
    if (!map || !map->l_name) return NULL;
    void *library = real_dlopen(map->l_name[0] ? map->l_name : NULL, RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? real_dlsym(library, name) : NULL;
    if (library) dlclose(library);
    return found;
}

/* A program may unload its GL library and load it again: what we keep must stay where it is. */
static void *keep(void *function) {
    Dl_info info;
    if (function && real_dlopen && dladdr(function, &info) && info.dli_fname)
        real_dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    return function;
}

/* Leaves no trace in errno or dlerror: the program did not ask. */
void *hw_resolve(const char *name, void *own, void *caller) {
    static const char *libraries[] = {"libGL.so.1", "libGLESv2.so.2", "libEGL.so.1", "libGLX.so.0",
                                      "libOpenGL.so.0", "libX11-xcb.so.1", "libxcb.so.1",
                                      "libcuda.so.1", "libOpenCL.so.1"};
    if (!real_dlsym) hw_find_loader();
    if (!real_dlsym || !real_dlopen) return NULL;
    HW_OWN;
    void *found = real_dlsym(RTLD_NEXT, name);
    if (!found || found == own) found = from_caller(name, caller);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && (!found || found == own); i++) {
        void *library = real_dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        if (!library) continue;
        found = real_dlsym(library, name);
        dlclose(library);
    }
    if (found == own) found = NULL;
    keep(found);
    dlerror();
    return found;
}

void *hw_find_in(const char *library, const char *name) {
    if (!real_dlsym) hw_find_loader();
    HW_OWN;
    void *handle = real_dlsym && real_dlopen ? real_dlopen(library, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *found = handle ? keep(real_dlsym(handle, name)) : NULL;
    if (handle) dlclose(handle);
    dlerror();
    return found;
}

bool hw_is_loaded(const char *library) {
    HW_OWN;
    void *handle = real_dlopen ? real_dlopen(library, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (handle) dlclose(handle);
    dlerror();
    return handle;
}

void *hw_find_beside(void *function, const char *name) {
    Dl_info info;
    return dladdr(function, &info) && info.dli_fname ? hw_find_in(info.dli_fname, name) : NULL;
}

void *hw_resolve_linked(const char *name, void *own, void *caller) {
    hw_survey_hooked(name, "link");
    return hw_resolve(name, own, caller);
}

/* ---- dlsym, eglGetProcAddress, glXGetProcAddress ---------------------------------------------- */

typedef void *(*lookup)(const char *);
static lookup real_eglGetProcAddress, real_glXGetProcAddress, real_glXGetProcAddressARB;
EXPORT void *eglGetProcAddress(const char *name);
EXPORT void *glXGetProcAddress(const unsigned char *name);
EXPORT void *glXGetProcAddressARB(const unsigned char *name);

static const struct hw_hook lookups[] = {
    {"eglGetProcAddress", (void *)eglGetProcAddress, (void **)&real_eglGetProcAddress, NULL},
    {"glXGetProcAddress", (void *)glXGetProcAddress, (void **)&real_glXGetProcAddress, NULL},
    {"glXGetProcAddressARB", (void *)glXGetProcAddressARB, (void **)&real_glXGetProcAddressARB, NULL},
};

static const struct hw_hook *find_among(const struct hw_hook *hooks, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(hooks[i].name, name)) return &hooks[i];
    return NULL;
}

const struct hw_hook *hw_find_hook(const char *name) {
    if (!name) return NULL;
    if (name[0] == 'c' && name[1] == 'u') return find_among(hw_cuda_hooks, hw_cuda_hook_count, name);
    if (name[0] == 'c' && name[1] == 'l') return find_among(hw_opencl_hooks, hw_opencl_hook_count, name);
    if (strncmp(name, "gl", 2) && strncmp(name, "egl", 3) && name[0] != 'X') return NULL;
    const struct hw_hook *hook = find_among(hw_hooks, hw_hook_count, name);
    return hook ? hook : find_among(lookups, sizeof lookups / sizeof *lookups, name);
}

/* What a look-up found: ours in its place, if it is hooked and if it exists at all. */
static void *replace(const char *name, void *found, const char *way) {
    const struct hw_hook *hook = found ? hw_find_hook(name) : NULL;
    if (!hook) return found ? hw_survey_passed(name, way, 0, found) : NULL;
    hw_survey_hooked(name, way);
    if (found != hook->wrapper && !*hook->real) *hook->real = keep(found);
    return hook->wrapper;
}

#define LOOK_UP(function, type) \
    void *function(type name) { \
        if (!real_##function) \
            real_##function = (lookup)hw_resolve(#function, (void *)function, __builtin_return_address(0)); \
        return real_##function ? replace((const char *)name, real_##function((const char *)name), #function) : NULL; \
    }
LOOK_UP(eglGetProcAddress, const char *)
LOOK_UP(glXGetProcAddress, const unsigned char *)
LOOK_UP(glXGetProcAddressARB, const unsigned char *)

#define NOWHERE ((void *)1) /* as the code below knows */

/* A look-up in a library: ours if the library has it. NULL: let the real dlsym answer, which looks at
 * who called it, so it must be reached by a jump. */
__attribute__((used, visibility("hidden"))) void *hw_dlsym(void *handle, const char *name) {
    if (!real_dlsym) hw_find_loader();
    if (handle == RTLD_NEXT || !real_dlsym) return NULL;
    const struct hw_hook *hook = hw_find_hook(name);
    if (!hook && !hw_is_work(name)) return NULL;
    void *found = real_dlsym(handle, name);
    /* The whole program was searched and only we have it: without us it would not be there. */
    if (hook && found == hook->wrapper && !*hook->real && !(*hook->real = hw_resolve(name, found, NULL))) {
        real_dlsym(RTLD_NEXT, name); /* for dlerror */
        return NOWHERE;
    }
    return replace(name, found, "dlsym");
}

__attribute__((used, visibility("hidden"))) void *hw_real_dlsym(void) { return (void *)real_dlsym; }

/* See deepbind.c. */
static int mode_for(const char *file, int mode, void *caller) {
    if (!(mode & RTLD_DEEPBIND) || !file || !hw_gate_enabled()) return mode;
    return hw_reaches_api(file, caller) ? mode & ~RTLD_DEEPBIND : mode;
}

/* What the real dlopen gets, as the code below keeps it. */
struct dlopen_arguments {
    uint64_t mode;
    const char *file;
};

__attribute__((used, visibility("hidden"))) void hw_before_dlopen(struct dlopen_arguments *given, void *caller) {
    given->mode = (uint64_t)mode_for(given->file, (int)given->mode, caller);
    given->file = hw_vulkan_open(given->file, caller);
}

/* The real dlopen searches the RUNPATH of whoever called it: a jump, too. */
__attribute__((used, visibility("hidden"))) void *hw_real_dlopen(void) {
    if (!real_dlopen) hw_find_loader();
    return (void *)real_dlopen;
}

#if defined(__x86_64__)
__asm__(".text\n.globl dlsym\n.type dlsym, @function\ndlsym:\n"
        "  push %rdi\n  push %rsi\n  sub $8, %rsp\n"
        "  call hw_dlsym\n"
        "  test %rax, %rax\n  jz 1f\n"
        "  cmp $1, %rax\n  jne 2f\n  xor %eax, %eax\n"
        "2: add $24, %rsp\n  ret\n"
        "1: call hw_real_dlsym\n"
        "  add $8, %rsp\n  pop %rsi\n  pop %rdi\n  jmp *%rax\n"
        ".size dlsym, .-dlsym\n"
        ".globl dlopen\n.type dlopen, @function\ndlopen:\n"
        "  push %rdi\n  push %rsi\n  sub $8, %rsp\n"
        "  lea 8(%rsp), %rdi\n  mov 24(%rsp), %rsi\n"
        "  call hw_before_dlopen\n"
        "  call hw_real_dlopen\n"
        "  add $8, %rsp\n  pop %rsi\n  pop %rdi\n  jmp *%rax\n"
        ".size dlopen, .-dlopen\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl dlsym\n.type dlsym, %function\ndlsym:\n"
        "  stp x29, x30, [sp, #-32]!\n  stp x0, x1, [sp, #16]\n"
        "  bl hw_dlsym\n"
        "  cbz x0, 1f\n"
        "  cmp x0, #1\n  csel x0, xzr, x0, eq\n"
        "  ldp x29, x30, [sp], #32\n  ret\n"
        "1: bl hw_real_dlsym\n  mov x16, x0\n"
        "  ldp x0, x1, [sp, #16]\n  ldp x29, x30, [sp], #32\n  br x16\n"
        ".size dlsym, .-dlsym\n"
        ".globl dlopen\n.type dlopen, %function\ndlopen:\n"
        "  stp x29, x30, [sp, #-32]!\n  stp x1, x0, [sp, #16]\n"
        "  add x0, sp, #16\n  mov x1, x30\n"
        "  bl hw_before_dlopen\n"
        "  bl hw_real_dlopen\n  mov x16, x0\n"
        "  ldp x1, x0, [sp, #16]\n  ldp x29, x30, [sp], #32\n  br x16\n"
        ".size dlopen, .-dlopen\n");
#else
#error "dlsym and dlopen must be reached by a jump: add it for this processor"
#endif
