/* Modules, the kernels that there are, and launches. The image of a module is a text:
 *     softcuda
 *     kernel NAME
 *     global NAME BYTES
 */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- kernels ------------------------------------------------------------------------------- */

static void *locate(CUdeviceptr address, size_t size) {
    pthread_mutex_lock(&big);
    void *found = host_address(address, size);
    pthread_mutex_unlock(&big);
    return found;
}

/* Takes its time, then changes its numbers so that order and number of the launches can be seen. */
static CUresult spin_us(const unsigned char *args) {
    struct { CUdeviceptr out; uint32_t us, n, mix; } a;
    memcpy(&a, args, sizeof a);
    gpu_run(a.us * 1000ull * waves);
    uint32_t *out = locate(a.out, a.n * 4ull);
    if (!out) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint32_t i = 0; i < a.n; i++) out[i] = (out[i] ^ a.mix) * 1664525u + 1013904223u + i;
    return CUDA_SUCCESS;
}

static CUresult add(const unsigned char *args) {
    struct { CUdeviceptr out, a, b; uint32_t n; } a;
    memcpy(&a, args, sizeof a);
    gpu_run(0);
    uint32_t *out = locate(a.out, a.n * 4ull), *x = locate(a.a, a.n * 4ull), *y = locate(a.b, a.n * 4ull);
    if (!out || !x || !y) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint32_t i = 0; i < a.n; i++) out[i] = x[i] + y[i];
    return CUDA_SUCCESS;
}

static CUresult saxpy(const unsigned char *args) {
    struct { CUdeviceptr y, x; float a; uint32_t n; } a;
    memcpy(&a, args, sizeof a);
    gpu_run(0);
    float *y = locate(a.y, a.n * 4ull), *x = locate(a.x, a.n * 4ull);
    if (!y || !x) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint32_t i = 0; i < a.n; i++) y[i] += a.a * x[i];
    return CUDA_SUCCESS;
}

static CUresult crash(const unsigned char *args) {
    (void)args;
    gpu_run(0);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static const struct kernel kernels[] = {
    {"spin_us", {8, 4, 4, 4}, spin_us, 0},
    {"spin_clusters", {8, 4, 4, 4}, spin_us, 2},
    {"ncclDevKernel_spin", {8, 4, 4, 4}, spin_us, 0},
    {"add", {8, 8, 8, 4}, add, 0},
    {"saxpy", {8, 8, 4, 4}, saxpy, 0},
    {"crash", {0}, crash, 0},
};

/* ---- modules ------------------------------------------------------------------------------- */

enum { KERNELS = sizeof kernels / sizeof *kernels, GLOBALS = 8 };

struct module {
    struct module *next;
    struct function { const struct kernel *kernel; } functions[KERNELS]; /* kernel is NULL: not in it */
    struct { char name[32]; struct memory memory; } globals[GLOBALS];
    int global_count;
};

static struct module *modules;

static bool read_line(struct module *m, const char *line) {
    char name[32];
    size_t size;
    bool found = false;
    if (sscanf(line, "kernel %31s", name) == 1) {
        for (int i = 0; i < KERNELS; i++)
            if (!strcmp(kernels[i].name, name)) m->functions[i].kernel = &kernels[i], found = true;
        return found;
    }
    if (sscanf(line, "global %31s %zu", name, &size) != 2) return !*line || *line == '\n';
    if (m->global_count == GLOBALS || !size) return false;
    char *bytes = calloc(1, size);
    int i = m->global_count++;
    strcpy(m->globals[i].name, name);
    m->globals[i].memory = (struct memory){memories, NULL, 0, (uintptr_t)bytes | DEVICE_BIT, size, DEVICE, false};
    memories = &m->globals[i].memory;
    return true;
}

static void unload(struct module *m) {
    for (int i = 0; i < m->global_count; i++) {
        struct memory **link = &memories;
        while (*link != &m->globals[i].memory) link = &(*link)->next;
        *link = m->globals[i].memory.next;
        free((void *)(uintptr_t)(m->globals[i].memory.address & ~DEVICE_BIT));
    }
    free(m);
}

static CUresult load(struct module **module, const char *image) {
    if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
    if (strncmp(image, "softcuda\n", 9)) return CUDA_ERROR_INVALID_IMAGE;
    struct module *m = calloc(1, sizeof *m);
    for (const char *line = image; (line = strchr(line, '\n')) && *++line;)
        if (!read_line(m, line)) return unload(m), CUDA_ERROR_INVALID_IMAGE;
    m->next = modules;
    *module = modules = m;
    return CUDA_SUCCESS;
}

static struct module **link_to(struct module *m) {
    struct module **link = &modules;
    while (*link && *link != m) link = &(*link)->next;
    return link;
}

static CUresult find(struct function **function, struct module *m, const char *name) {
    if (!function || !name) return CUDA_ERROR_INVALID_VALUE;
    if (!m || !*link_to(m)) return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < KERNELS; i++)
        if (m->functions[i].kernel && !strcmp(kernels[i].name, name)) return *function = &m->functions[i], CUDA_SUCCESS;
    return CUDA_ERROR_NOT_FOUND;
}

static bool is_function(const struct function *f) {
    for (struct module *m = modules; m; m = m->next)
        if (f >= m->functions && f < m->functions + KERNELS) return f->kernel;
    return false;
}

static CUresult load_in_context(CUmodule *module, const void *image) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    return error ? error : leave(load(module, image));
}

static CUresult unload_one(struct module *m) {
    pthread_mutex_lock(&big);
    struct module **link = link_to(m);
    if (!m || !*link) return leave(CUDA_ERROR_INVALID_HANDLE);
    *link = m->next;
    unload(m);
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) { return load_in_context(module, image); }

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return load_in_context(module, image);
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    return error ? error : (leave(0), unload_one(module));
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    return error ? error : leave(find(function, module, name));
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (!name) return leave(CUDA_ERROR_INVALID_VALUE);
    if (!module || !*link_to(module)) return leave(CUDA_ERROR_INVALID_HANDLE);
    for (int i = 0; i < module->global_count; i++) {
        if (strcmp(module->globals[i].name, name)) continue;
        if (address) *address = module->globals[i].memory.address;
        if (size) *size = module->globals[i].memory.size;
        return leave(CUDA_SUCCESS);
    }
    return leave(CUDA_ERROR_NOT_FOUND);
}

/* Libraries belong to no context. */
EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *jit, void **jit_values, unsigned jit_count,
                                  int *options, void **values, unsigned count) {
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    CUresult error = initialized();
    if (error) return error;
    pthread_mutex_lock(&big);
    return leave(load(library, code));
}

EXPORT CUresult cuLibraryUnload(CUlibrary library) {
    CUresult error = initialized();
    return error ? error : unload_one(library);
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CUresult error = initialized();
    if (error) return error;
    pthread_mutex_lock(&big);
    return leave(find(kernel, library, name));
}

EXPORT CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (!library || !*link_to(library)) return leave(CUDA_ERROR_INVALID_HANDLE);
    *module = library;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (!is_function(kernel)) return leave(CUDA_ERROR_INVALID_HANDLE);
    *function = kernel;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction f) {
    CUresult error = initialized();
    if (error) return error;
    if (!name || !is_function(f)) return CUDA_ERROR_INVALID_VALUE;
    *name = f->kernel->name;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction f) {
    enum { CLUSTER_MUST_BE_SET = 10, CLUSTER_WIDTH, LAST = 15 };
    CUresult error = initialized();
    if (error) return error;
    if (!value || attribute < 0 || attribute > LAST || !is_function(f)) return CUDA_ERROR_INVALID_VALUE;
    *value = attribute == CLUSTER_WIDTH ? f->kernel->cluster : 0;
    return CUDA_SUCCESS;
}

/* ---- launches ------------------------------------------------------------------------------ */

static bool pack(struct op *op, void **params, void **extra) {
    const int *sizes = op->launch.kernel->sizes;
    if (params) {
        size_t at = 0;
        for (int i = 0; sizes[i]; i++) {
            size_t size = (size_t)sizes[i];
            at = (at + size - 1) / size * size;
            memcpy(op->launch.args + at, params[i], size);
            at += size;
        }
        return !extra;
    }
    const void *buffer = NULL;
    size_t size = 0;
    for (; extra && *extra != CU_LAUNCH_END; extra += 2) {
        if (*extra == CU_LAUNCH_BUFFER) buffer = extra[1];
        if (*extra == CU_LAUNCH_SIZE) size = *(size_t *)extra[1];
    }
    if (size > sizeof op->launch.args) return false;
    if (buffer) memcpy(op->launch.args, buffer, size);
    return buffer || !sizes[0];
}

/* Called with the lock. */
CUresult make_launch(struct op *op, CUfunction f, const unsigned dims[6], void **params, void **extra) {
    if (!is_function(f)) return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < 6; i++)
        if (!dims[i]) return CUDA_ERROR_INVALID_VALUE;
    if ((uint64_t)dims[3] * dims[4] * dims[5] > 1024) return CUDA_ERROR_INVALID_VALUE;
    *op = (struct op){.kind = KERNEL, .launch = {.kernel = f->kernel, .blocks = dims[0] * dims[1] * dims[2]}};
    return pack(op, params, extra) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult launch(CUfunction f, const unsigned dims[6], CUstream h, void **params, void **extra) {
    struct stream *s;
    struct op op;
    if (settings.launch_us) pause_ns(settings.launch_us * 1000);
    CUresult error = enter_own_stream(h, &s);
    if (error) return error;
    if ((error = make_launch(&op, f, dims, params, extra))) return leave(error);
    return leave(submit(s, &op));
}

#define DIMS (const unsigned[6]){gx, gy, gz, bx, by, bz}

PT(cuLaunchKernel, _ptsz,
   (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
    CUstream h, void **params, void **extra),
   (f, gx, gy, gz, bx, by, bz, shared, h, params, extra)) {
    (void)shared;
    return launch(f, DIMS, h, params, extra);
}

PT(cuLaunchCooperativeKernel, _ptsz,
   (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
    CUstream h, void **params),
   (f, gx, gy, gz, bx, by, bz, shared, h, params)) {
    (void)shared;
    return launch(f, DIMS, h, params, NULL);
}

PT(cuLaunchKernelEx, _ptsz, (const CUlaunchConfig *c, CUfunction f, void **params, void **extra),
   (c, f, params, extra)) {
    if (!c || (c->attributeCount && !c->attributes)) return CUDA_ERROR_INVALID_VALUE;
    const unsigned dims[6] = {c->gridX, c->gridY, c->gridZ, c->blockX, c->blockY, c->blockZ};
    return launch(f, dims, c->stream, params, extra);
}

/* ---- entry points that nobody knows ------------------------------------------------------------ */

static const unsigned one[6] = {1, 1, 1, 1, 1, 1};

/* The name is known, what it takes is not. */
PT(cuLaunchKernel_v3, _ptsz, (const CUfutureLaunch *l), (l)) {
    return l && l->size == sizeof *l ? launch(l->function, one, l->stream, l->params, NULL) : CUDA_ERROR_INVALID_VALUE;
}

/* Not even the name is. */
PT(cuLaunchKernelBatch, _ptsz, (CUstream h, unsigned count, CUfunction f, void ***params), (h, count, f, params)) {
    CUresult error = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && !error; i++) error = launch(f, one, h, params[i], NULL);
    return error;
}

PT(cuLaunchHostFunc, _ptsz, (CUstream h, CUhostFn function, void *data), (h, function, data)) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if (!function) return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(submit(s, &(struct op){.kind = HOST, .host = {.function = function, .data = data}}));
}

PT(cuStreamAddCallback, _ptsz, (CUstream h, CUstreamCallback callback, void *data, unsigned flags),
   (h, callback, data, flags)) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if (!callback || flags) return leave(CUDA_ERROR_INVALID_VALUE);
    if (s->capture) return leave(invalidate(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    struct op op = {.kind = HOST, .keep_on_error = true, .host = {.callback = callback, .data = data}};
    return leave(submit(s, &op));
}
