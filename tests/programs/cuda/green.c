/* Green contexts: parts of a device's multiprocessors, in steps of eight. Their streams are streams of the primary
 * context whose kernels have these multiprocessors only. */
#include "driver.h"
#include <stdlib.h>
#include <string.h>

enum { STEP = 8, SM_RESOURCE = 1, DEFAULT_STREAM = 1 };

static struct green {
    struct green *next;
    CUcontext ctx;
    CUdevice device;
    unsigned sms;
} *greens;

static CUresult is_there(CUdevice device, const void *answer) {
    if (initialized()) return initialized();
    return settings.no_green == 1 ? CUDA_ERROR_NOT_SUPPORTED : is_device(device, answer);
}

enum { SPLIT = 2, DESCRIBE, CREATE, STREAM };
/* There are green contexts, but one of the steps to one of their streams fails. */
static CUresult step(int which) { return settings.no_green == (uint64_t)which ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS; }

EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, int type) {
    CUresult error = is_there(device, resource);
    if (error) return error;
    if (type != SM_RESOURCE) return CUDA_ERROR_INVALID_VALUE;
    *resource = (CUdevResource){.type = type, .smCount = SMS};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned *count, const CUdevResource *whole,
                                            CUdevResource *rest, unsigned flags, unsigned least) {
    CUresult error = is_there(0, whole);
    if (!error) error = step(SPLIT);
    if (error) return error;
    if (!count || whole->type != SM_RESOURCE || flags) return CUDA_ERROR_INVALID_VALUE;
    unsigned each = least < STEP ? STEP : (least + STEP - 1) / STEP * STEP, most = whole->smCount / each;
    if (groups && *count < most) most = *count;
    for (unsigned i = 0; groups && i < most; i++) groups[i] = (CUdevResource){.type = SM_RESOURCE, .smCount = each};
    if (rest) *rest = (CUdevResource){.type = SM_RESOURCE, .smCount = whole->smCount - most * each};
    *count = most;
    return most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *described, CUdevResource *resources, unsigned count) {
    CUresult error = is_there(0, described);
    if (!error) error = step(DESCRIBE);
    if (error) return error;
    if (!resources || count != 1 || !resources->smCount) return CUDA_ERROR_INVALID_VALUE;
    *described = malloc(sizeof **described); /* nobody can give it back */
    **described = *resources;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *made, CUdevResourceDesc described, CUdevice device, unsigned flags) {
    CUcontext ctx;
    CUresult error = is_there(device, made);
    if (!error) error = step(CREATE);
    if (error) return error;
    if (!described || flags != DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    if ((error = cuDevicePrimaryCtxRetain(&ctx, device))) return error;
    pause_ns(settings.green_us * 1000);
    pthread_mutex_lock(&big);
    struct green *green = malloc(sizeof *green);
    *green = (struct green){greens, ctx, device, described->smCount};
    *made = greens = green;
    return leave(CUDA_SUCCESS);
}

static struct green **link_to(const struct green *green) {
    struct green **link = &greens;
    while (*link && *link != green) link = &(*link)->next;
    return link;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    CUresult error = is_there(0, green);
    if (error) return error;
    pthread_mutex_lock(&big);
    struct green **link = link_to(green);
    if (!*link) return leave(CUDA_ERROR_INVALID_CONTEXT);
    CUdevice device = green->device;
    *link = green->next;
    free(green);
    leave(CUDA_SUCCESS);
    return cuDevicePrimaryCtxRelease_v2(device);
}

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags, int priority) {
    CUresult error = is_there(0, stream);
    if (!error) error = step(STREAM);
    if (error) return error;
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&big);
    if (!*link_to(green)) return leave(CUDA_ERROR_INVALID_CONTEXT);
    *stream = new_stream(green->ctx, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
    (*stream)->sms = green->sms;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green) {
    struct stream *s;
    CUresult error = is_there(0, green);
    if (!error) error = enter_stream(stream, &s);
    if (error) return error;
    *green = NULL;
    for (struct green *one = greens; one && s->sms; one = one->next)
        if (one->ctx == s->ctx && one->sms == s->sms) *green = one;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, int type) {
    CUresult error = is_there(0, resource);
    if (error) return error;
    if (type != SM_RESOURCE) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&big);
    if (!*link_to(green)) return leave(CUDA_ERROR_INVALID_CONTEXT);
    *resource = (CUdevResource){.type = type, .smCount = green->sms};
    return leave(CUDA_SUCCESS);
}
