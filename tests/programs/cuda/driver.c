/* Devices, contexts, memory, copies. */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the driver and its devices -------------------------------------------------------------- */

static const struct { CUresult code; const char *name, *text; } errors[] = {
#define ERROR(name, text) {CUDA_##name, "CUDA_" #name, text}
    ERROR(SUCCESS, "no error"),
    ERROR(ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(ERROR_NOT_READY, "device not ready"),
    ERROR(ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
    ERROR(ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    ERROR(ERROR_NOT_PERMITTED, "operation not permitted"),
    ERROR(ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    ERROR(ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    ERROR(ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    ERROR(ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    ERROR(ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    ERROR(ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    ERROR(ERROR_STREAM_CAPTURE_IMPLICIT,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(ERROR_STREAM_CAPTURE_WRONG_THREAD,
          "attempt to terminate a thread-local capture sequence from another thread"),
};

static CUresult describe(CUresult code, const char **answer, bool name) {
    if (!answer) return CUDA_ERROR_INVALID_VALUE;
    *answer = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors && !*answer; i++)
        if (errors[i].code == code) *answer = name ? errors[i].name : errors[i].text;
    return *answer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **name) { return describe(code, name, true); }
EXPORT CUresult cuGetErrorString(CUresult code, const char **text) { return describe(code, text, false); }

EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = (int)settings.version;
    return CUDA_SUCCESS;
}

CUresult is_device(CUdevice device, const void *answer) {
    CUresult error = initialized();
    if (error || !answer) return error ? error : CUDA_ERROR_INVALID_VALUE;
    return device < 0 || device >= visible_count ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CUresult error = is_device(ordinal, device);
    if (!error) *device = ordinal;
    return error;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    CUresult error = is_device(0, count);
    if (!error) *count = visible_count;
    return error;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    CUresult error = is_device(device, name);
    if (!error) snprintf(name, (size_t)length, "Software CUDA device");
    return error;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *id, CUdevice device) {
    CUresult error = is_device(device, id);
    if (error) return error;
    memcpy(id, "software-cuda-00", sizeof *id);
    id->bytes[15] = (char)('0' + visible[device]);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *, CUdevice) __attribute__((alias("cuDeviceGetUuid")));

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    CUresult error = is_device(device, text);
    if (!error) snprintf(text, (size_t)length, "0000:%d9:00.0", visible[device]);
    return error;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult error = is_device(device, bytes);
    if (!error) *bytes = settings.memory;
    return error;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    static const struct { int attribute, value; } table[] = {
        {1, 1024}, /* threads per block */ {10, 32}, /* warp */ {16, 132}, /* multiprocessors */
        {31, 1}, /* concurrent kernels */ {40, 1}, /* copy engines */ {41, 1}, /* unified addresses */
        {75, 9}, {76, 0}, /* compute capability */ {78, 1}, /* stream priorities */
        {91, 1}, {99, 1}, /* registered host memory */ {95, 1}, /* cooperative launch */ {115, 1}, /* pools */
    };
    static const int memops[] = {92, 93, 94, 122, 123};
    CUresult error = is_device(device, value);
    if (error) return error;
    if (attribute < 1 || attribute > 255) return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].attribute == attribute) *value = table[i].value;
    for (size_t i = 0; i < sizeof memops / sizeof *memops; i++)
        if (memops[i] == attribute) *value = !settings.no_memops;
    return CUDA_SUCCESS;
}

/* ---- contexts ------------------------------------------------------------------------------ */

static struct ctx *all_contexts, *primary[MOST_DEVICES]; /* destroyed ones stay, to be told from garbage */
static unsigned primary_flags[MOST_DEVICES];
static _Thread_local CUcontext stack[16];
static _Thread_local int depth;

struct ctx *current_ctx(void) { return depth ? stack[depth - 1] : NULL; }

static CUresult check_ctx(CUcontext ctx) {
    struct ctx *c = all_contexts;
    while (c && c != ctx) c = c->next;
    return !c ? CUDA_ERROR_INVALID_CONTEXT : c->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

static struct ctx *new_ctx(unsigned flags, int device) {
    struct ctx *ctx = calloc(1, sizeof *ctx);
    *ctx = (struct ctx){.next = all_contexts, .flags = flags, .users = 1, .device = device};
    new_stream(ctx, CU_STREAM_DEFAULT, 0);
    return all_contexts = ctx;
}

static void destroy(CUcontext ctx) {
    end_context(ctx);
    for (struct memory *m = memories, *next; m; m = next) {
        next = m->next;
        if (m->ctx == ctx) forget_memory(m);
    }
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device) {
    CUresult error = is_device(device, ctx);
    if (error) return error;
    if (depth == sizeof stack / sizeof *stack) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&big);
    *ctx = stack[depth++] = new_ctx(flags, visible[device]);
    return leave(CUDA_SUCCESS);
}

static CUresult (*const create)(CUcontext *, unsigned, CUdevice) = cuCtxCreate_v2;

EXPORT CUresult cuCtxCreate_v3(CUcontext *ctx, void *affinity, int count, unsigned flags, CUdevice device) {
    return affinity || count ? CUDA_ERROR_NOT_SUPPORTED : create(ctx, flags, device);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *ctx, void *params, unsigned flags, CUdevice device) {
    (void)params;
    return create(ctx, flags, device);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx) {
    CUresult error = initialized();
    if (error) return error;
    pthread_mutex_lock(&big);
    if ((error = check_ctx(ctx)) || ctx == primary[ctx->device]) return leave(error ? error : CUDA_ERROR_INVALID_CONTEXT);
    destroy(ctx);
    if (current_ctx() == ctx) depth--;
    return leave(CUDA_SUCCESS);
}
EXPORT CUresult cuCtxDestroy(CUcontext) __attribute__((alias("cuCtxDestroy_v2")));

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    CUresult error = initialized();
    if (error) return error;
    pthread_mutex_lock(&big);
    if ((error = check_ctx(ctx))) return leave(error);
    if (depth == sizeof stack / sizeof *stack) return leave(CUDA_ERROR_OUT_OF_MEMORY);
    stack[depth++] = ctx;
    return leave(CUDA_SUCCESS);
}
EXPORT CUresult cuCtxPushCurrent(CUcontext) __attribute__((alias("cuCtxPushCurrent_v2")));

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *ctx) {
    CUresult error = initialized();
    if (error) return error;
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (ctx) *ctx = stack[depth];
    return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPopCurrent(CUcontext *) __attribute__((alias("cuCtxPopCurrent_v2")));

EXPORT CUresult cuCtxSetCurrent(CUcontext ctx) {
    CUresult error = initialized();
    if (error) return error;
    pthread_mutex_lock(&big);
    if (ctx && (error = check_ctx(ctx))) return leave(error);
    if (depth) depth--;
    if (ctx) stack[depth++] = ctx;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *ctx) {
    CUresult error = is_device(0, ctx);
    if (!error) *ctx = current_ctx();
    return error;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    *device = 0;
    while (visible[*device] != ctx->device) ++*device;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return initialized();
}

static CUresult synchronize(CUcontext ctx) {
    CUresult error = unsafe_call();
    return leave(error ? error : wait_context(ctx));
}

EXPORT CUresult cuCtxSynchronize(void) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    return error ? error : synchronize(ctx);
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext wanted) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (wanted && (error = check_ctx(wanted))) return leave(error);
    return synchronize(wanted ? wanted : ctx);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device) {
    CUresult error = is_device(device, ctx);
    if (error) return error;
    pthread_mutex_lock(&big);
    int place = visible[device];
    if (primary[place]) primary[place]->users++;
    else primary[place] = new_ctx(primary_flags[place], place);
    *ctx = primary[place];
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CUresult error = is_device(device, &device);
    if (error) return error;
    pthread_mutex_lock(&big);
    int place = visible[device];
    if (!primary[place]) return leave(CUDA_ERROR_INVALID_CONTEXT);
    if (--primary[place]->users == 0) {
        destroy(primary[place]);
        primary[place] = NULL;
    }
    return leave(CUDA_SUCCESS);
}
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice) __attribute__((alias("cuDevicePrimaryCtxRelease_v2")));

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    CUresult error = is_device(device, &device);
    if (!error) primary_flags[visible[device]] = flags;
    return error;
}
EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice, unsigned) __attribute__((alias("cuDevicePrimaryCtxSetFlags_v2")));

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    CUresult error = is_device(device, flags);
    if (error) return error;
    *flags = primary_flags[visible[device]];
    *active = primary[visible[device]] != NULL;
    return CUDA_SUCCESS;
}

/* ---- memory -------------------------------------------------------------------------------- */

static size_t in_use(int device) {
    size_t sum = 0;
    for (struct memory *m = memories; m; m = m->next) sum += m->kind == DEVICE && m->device == device ? m->size : 0;
    return sum;
}

static CUresult allocate(CUcontext ctx, CUdeviceptr *address, size_t size, int kind) {
    if (!address || !size) return CUDA_ERROR_INVALID_VALUE;
    if (kind == DEVICE && (size > settings.memory || in_use(ctx->device) > settings.memory - size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *bytes = aligned_alloc(256, (size + 255) & ~(size_t)255);
    if (!bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    struct memory *m = malloc(sizeof *m);
    *address = (CUdeviceptr)(uintptr_t)bytes | (kind == DEVICE ? DEVICE_BIT : 0);
    *m = (struct memory){memories, ctx, ctx->device, *address, size, kind, false};
    memories = m;
    return CUDA_SUCCESS;
}

/* One that the program may free: not a module's, and not on its way out. */
static struct memory *starts_at(CUdeviceptr address, int kind) {
    struct memory *m = memories;
    while (m && (m->address != address || (int)m->kind != kind || !m->ctx || m->leaving)) m = m->next;
    return m;
}

static CUresult alloc_now(CUdeviceptr *address, size_t size, int kind) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    error = unsafe_call();
    return leave(error ? error : allocate(ctx, address, size, kind));
}

/* Waits for the work that may use it. */
static CUresult free_now(CUdeviceptr address, int kind) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (!address && kind == DEVICE) return leave(CUDA_SUCCESS);
    struct memory *m = starts_at(address, kind);
    if (!m) return leave(kind == REGISTERED ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE);
    if ((error = unsafe_call()) || (error = wait_context(m->ctx))) return leave(error);
    if ((m = starts_at(address, kind))) forget_memory(m);
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) { return alloc_now(address, size, DEVICE); }
EXPORT CUresult cuMemFree_v2(CUdeviceptr address) { return free_now(address, DEVICE); }

EXPORT CUresult cuMemHostAlloc(void **host, size_t size, unsigned flags) {
    (void)flags;
    CUdeviceptr address = 0;
    CUresult error = host ? alloc_now(&address, size, HOST_MEMORY) : CUDA_ERROR_INVALID_VALUE;
    if (!error) *host = (void *)(uintptr_t)address;
    return error;
}

EXPORT CUresult cuMemAllocHost_v2(void **host, size_t size) {
    CUdeviceptr address = 0;
    CUresult error = host ? alloc_now(&address, size, HOST_MEMORY) : CUDA_ERROR_INVALID_VALUE;
    if (!error) *host = (void *)(uintptr_t)address;
    return error;
}

EXPORT CUresult cuMemFreeHost(void *host) { return free_now((uintptr_t)host, HOST_MEMORY); }
EXPORT CUresult cuMemHostUnregister(void *host) { return free_now((uintptr_t)host, REGISTERED); }

EXPORT CUresult cuMemHostRegister_v2(void *host, size_t size, unsigned flags) {
    (void)flags;
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (!host || !size) return leave(CUDA_ERROR_INVALID_VALUE);
    if ((error = unsafe_call())) return leave(error);
    for (struct memory *m = memories; m; m = m->next)
        if ((uintptr_t)host < m->address + m->size && m->address < (uintptr_t)host + size)
            return leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    struct memory *m = malloc(sizeof *m);
    *m = (struct memory){memories, ctx, ctx->device, (uintptr_t)host, size, REGISTERED, false};
    memories = m;
    return leave(CUDA_SUCCESS);
}
EXPORT CUresult cuMemHostRegister(void *, size_t, unsigned) __attribute__((alias("cuMemHostRegister_v2")));

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned flags) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (!address || flags || !find_memory((uintptr_t)host, 1)) return leave(CUDA_ERROR_INVALID_VALUE);
    *address = (uintptr_t)host;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    const struct memory *m = find_memory(address, 1);
    if (!m) return leave(CUDA_ERROR_INVALID_VALUE);
    if (base) *base = m->address;
    if (size) *size = m->size;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    *free_bytes = settings.memory - in_use(ctx->device);
    *total = settings.memory;
    return leave(CUDA_SUCCESS);
}

PT(cuMemAllocAsync, _ptsz, (CUdeviceptr *address, size_t size, CUstream h), (address, size, h)) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    return error ? error : leave(allocate(s->ctx, address, size, DEVICE));
}

PT(cuMemFreeAsync, _ptsz, (CUdeviceptr address, CUstream h), (address, h)) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    struct memory *m = starts_at(address, DEVICE);
    if (!m) return leave(CUDA_ERROR_INVALID_VALUE);
    if (s->capture) return leave(CUDA_SUCCESS); /* a graph may use it again: it stays */
    error = submit(s, &(struct op){.kind = RELEASE, .release = m});
    m->leaving = !error;
    return leave(error);
}

/* ---- copies and sets ------------------------------------------------------------------------- */

static bool is_pageable(const void *p, size_t size) { return !find_memory((uintptr_t)p, size); }

/* What the program may change again after the call is kept; what it may read after the call is there. */
static CUresult copy(CUstream h, struct op op, bool from_host, bool to_host, bool sync) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    op.kind = COPY;
    size_t last = op.copy.height ? op.copy.height - 1 : 0;
    size_t from = last * op.copy.from_pitch + op.copy.width, to = last * op.copy.to_pitch + op.copy.width;
    if (!op.copy.width || !op.copy.height) return leave(CUDA_SUCCESS);
    if (!from_host) op.copy.from = host_address((uintptr_t)op.copy.from, from);
    if (!to_host) op.copy.to = host_address((uintptr_t)op.copy.to, to);
    if (!op.copy.to || !op.copy.from) return leave(CUDA_ERROR_INVALID_VALUE);
    if (sync && s->capture) return leave(invalidate(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    if (s->legacy && (error = touch_legacy(s->ctx, true))) return leave(error);
    if (sync && (error = unsafe_call())) return leave(error);
    if (!s->capture) {
        if (!sync && from_host && is_pageable(op.copy.from, from)) {
            op.copy.staged = malloc(from);
            op.copy.from = memcpy(op.copy.staged, op.copy.from, from);
        }
        sync |= to_host && is_pageable(op.copy.to, to);
    }
    if ((error = submit(s, &op)) || !sync || s->capture) {
        if (error) free(op.copy.staged);
        return leave(error);
    }
    return leave(wait_idle(s, s->ctx->seq));
}

static CUresult copy_bytes(CUstream h, CUdeviceptr to, CUdeviceptr from, size_t size, bool from_host, bool to_host,
                           bool sync) {
    struct op op = {.copy = {.to = (char *)(uintptr_t)to, .from = (char *)(uintptr_t)from, .width = size, .height = 1}};
    return copy(h, op, from_host, to_host, sync);
}

static bool on_host(CUdeviceptr p) { return !(p & DEVICE_BIT); }

PT(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t n), (to, from, n)) {
    return copy_bytes(NULL, to, from, n, on_host(from), on_host(to), on_host(from) || on_host(to));
}
PT(cuMemcpyAsync, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream h), (to, from, n, h)) {
    return copy_bytes(h, to, from, n, on_host(from), on_host(to), false);
}
PT(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void *from, size_t n), (to, from, n)) {
    return copy_bytes(NULL, to, (uintptr_t)from, n, true, false, true);
}
PT(cuMemcpyDtoH_v2, _ptds, (void *to, CUdeviceptr from, size_t n), (to, from, n)) {
    return copy_bytes(NULL, (uintptr_t)to, from, n, false, true, true);
}
PT(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t n), (to, from, n)) {
    return copy_bytes(NULL, to, from, n, false, false, false);
}
PT(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr to, const void *from, size_t n, CUstream h), (to, from, n, h)) {
    return copy_bytes(h, to, (uintptr_t)from, n, true, false, false);
}
PT(cuMemcpyDtoHAsync_v2, _ptsz, (void *to, CUdeviceptr from, size_t n, CUstream h), (to, from, n, h)) {
    return copy_bytes(h, (uintptr_t)to, from, n, false, true, false);
}
PT(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream h), (to, from, n, h)) {
    return copy_bytes(h, to, from, n, false, false, false);
}

static CUresult copy_2d(const CUcopy2D *c, CUstream h, bool sync) {
    if (!c || c->srcType == CU_MEMORY_ARRAY || c->dstType == CU_MEMORY_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    bool from_host = c->srcType == CU_MEMORY_HOST || (c->srcType == CU_MEMORY_UNIFIED && on_host(c->srcDevice));
    bool to_host = c->dstType == CU_MEMORY_HOST || (c->dstType == CU_MEMORY_UNIFIED && on_host(c->dstDevice));
    size_t from_pitch = c->srcPitch ? c->srcPitch : c->width, to_pitch = c->dstPitch ? c->dstPitch : c->width;
    if (from_pitch < c->width || to_pitch < c->width) return CUDA_ERROR_INVALID_VALUE;
    uintptr_t from = c->srcType == CU_MEMORY_HOST ? (uintptr_t)c->srcHost : c->srcDevice;
    uintptr_t to = c->dstType == CU_MEMORY_HOST ? (uintptr_t)c->dstHost : c->dstDevice;
    struct op op = {.copy = {.to = (char *)to + c->dstY * to_pitch + c->dstX,
                             .from = (char *)from + c->srcY * from_pitch + c->srcX,
                             .width = c->width,
                             .height = c->height,
                             .to_pitch = to_pitch,
                             .from_pitch = from_pitch}};
    return copy(h, op, from_host, to_host, sync && (from_host || to_host));
}

PT(cuMemcpy2D_v2, _ptds, (const CUcopy2D *c), (c)) { return copy_2d(c, NULL, true); }
PT(cuMemcpy2DAsync_v2, _ptsz, (const CUcopy2D *c, CUstream h), (c, h)) { return copy_2d(c, h, false); }

static CUresult set(CUstream h, CUdeviceptr to, uint32_t value, size_t count, int bytes) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    char *at = host_address(to, count * (size_t)bytes);
    if (!at || to % (unsigned)bytes) return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(submit(s, &(struct op){.kind = SET, .set = {at, value, count, bytes}}));
}

PT(cuMemsetD8_v2, _ptds, (CUdeviceptr to, unsigned char v, size_t n), (to, v, n)) { return set(NULL, to, v, n, 1); }
PT(cuMemsetD32_v2, _ptds, (CUdeviceptr to, unsigned v, size_t n), (to, v, n)) { return set(NULL, to, v, n, 4); }
PT(cuMemsetD8Async, _ptsz, (CUdeviceptr to, unsigned char v, size_t n, CUstream h), (to, v, n, h)) {
    return set(h, to, v, n, 1);
}
PT(cuMemsetD32Async, _ptsz, (CUdeviceptr to, unsigned v, size_t n, CUstream h), (to, v, n, h)) {
    return set(h, to, v, n, 4);
}
