/* How a test program reaches the driver, chosen by the environment:
 *     VIA         link (when built with -DLINKED), dlsym, proc (cuGetProcAddress) or proc2 (its second version)
 *     PER_THREAD  1: as compiled for the per-thread default stream
 *     DEVICE      which device to use (0)
 *     VERSION     what to ask cuGetProcAddress for (12000; the table has the types of CUDA 12)
 * Each program calls through the table `cu`. */
#pragma once
#include "abi.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* F: one entry point.  S, D: with a variant _ptsz or _ptds.  (name asked for, symbol, parameters) */
#define DIMS unsigned, unsigned, unsigned
#define ENTRY_POINTS(F, S, D) \
    F(Init, Init, (unsigned)) \
    F(DriverGetVersion, DriverGetVersion, (int *)) \
    F(DeviceGet, DeviceGet, (CUdevice *, int)) \
    F(GetErrorName, GetErrorName, (CUresult, const char **)) \
    F(GetExportTable, GetExportTable, (const void **, const CUuuid *)) \
    F(DeviceGetCount, DeviceGetCount, (int *)) \
    F(DeviceGetName, DeviceGetName, (char *, int, CUdevice)) \
    F(DeviceGetUuid, DeviceGetUuid_v2, (CUuuid *, CUdevice)) \
    F(DeviceGetPCIBusId, DeviceGetPCIBusId, (char *, int, CUdevice)) \
    F(DeviceTotalMem, DeviceTotalMem_v2, (size_t *, CUdevice)) \
    F(DevicePrimaryCtxGetState, DevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) \
    F(CtxCreate, CtxCreate_v3, (CUcontext *, void *, int, unsigned, CUdevice)) \
    F(CtxPushCurrent, CtxPushCurrent_v2, (CUcontext)) \
    F(CtxPopCurrent, CtxPopCurrent_v2, (CUcontext *)) \
    F(CtxGetDevice, CtxGetDevice, (CUdevice *)) \
    F(DeviceGetAttribute, DeviceGetAttribute, (int *, int, CUdevice)) \
    F(DevicePrimaryCtxRetain, DevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
    F(DevicePrimaryCtxRelease, DevicePrimaryCtxRelease_v2, (CUdevice)) \
    F(CtxDestroy, CtxDestroy_v2, (CUcontext)) \
    F(CtxSetCurrent, CtxSetCurrent, (CUcontext)) \
    F(CtxGetCurrent, CtxGetCurrent, (CUcontext *)) \
    F(CtxSynchronize, CtxSynchronize, (void)) \
    F(ModuleLoadData, ModuleLoadData, (CUmodule *, const void *)) \
    F(ModuleUnload, ModuleUnload, (CUmodule)) \
    F(ModuleGetFunction, ModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
    F(ModuleGetGlobal, ModuleGetGlobal_v2, (CUdeviceptr *, size_t *, CUmodule, const char *)) \
    F(LibraryLoadData, LibraryLoadData, \
      (CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned)) \
    F(LibraryGetKernel, LibraryGetKernel, (CUkernel *, CUlibrary, const char *)) \
    F(KernelGetFunction, KernelGetFunction, (CUfunction *, CUkernel)) \
    F(MemAlloc, MemAlloc_v2, (CUdeviceptr *, size_t)) \
    F(MemFree, MemFree_v2, (CUdeviceptr)) \
    F(MemHostAlloc, MemHostAlloc, (void **, size_t, unsigned)) \
    F(MemFreeHost, MemFreeHost, (void *)) \
    F(MemHostRegister, MemHostRegister_v2, (void *, size_t, unsigned)) \
    F(MemHostGetDevicePointer, MemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned)) \
    S(MemAllocAsync, MemAllocAsync, (CUdeviceptr *, size_t, CUstream)) \
    S(MemFreeAsync, MemFreeAsync, (CUdeviceptr, CUstream)) \
    D(Memcpy, Memcpy, (CUdeviceptr, CUdeviceptr, size_t)) \
    D(MemcpyHtoD, MemcpyHtoD_v2, (CUdeviceptr, const void *, size_t)) \
    D(MemcpyDtoH, MemcpyDtoH_v2, (void *, CUdeviceptr, size_t)) \
    S(MemcpyHtoDAsync, MemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream)) \
    S(MemcpyDtoHAsync, MemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream)) \
    D(Memcpy2D, Memcpy2D_v2, (const CUcopy2D *)) \
    D(MemcpyDtoD, MemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t)) \
    S(MemcpyAsync, MemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    S(Memcpy2DAsync, Memcpy2DAsync_v2, (const CUcopy2D *, CUstream)) \
    D(MemsetD32, MemsetD32_v2, (CUdeviceptr, unsigned, size_t)) \
    S(MemsetD8Async, MemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream)) \
    S(LaunchKernel, LaunchKernel, (CUfunction, DIMS, DIMS, unsigned, CUstream, void **, void **)) \
    S(LaunchKernelEx, LaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **)) \
    S(LaunchCooperativeKernel, LaunchCooperativeKernel, (CUfunction, DIMS, DIMS, unsigned, CUstream, void **)) \
    S(LaunchHostFunc, LaunchHostFunc, (CUstream, CUhostFn, void *)) \
    F(StreamCreate, StreamCreate, (CUstream *, unsigned)) \
    F(StreamCreateWithPriority, StreamCreateWithPriority, (CUstream *, unsigned, int)) \
    S(StreamGetFlags, StreamGetFlags, (CUstream, unsigned *)) \
    S(StreamGetPriority, StreamGetPriority, (CUstream, int *)) \
    S(StreamGetCtx, StreamGetCtx, (CUstream, CUcontext *)) \
    S(StreamGetId, StreamGetId, (CUstream, unsigned long long *)) \
    S(StreamGetCaptureInfo, StreamGetCaptureInfo_v2, \
      (CUstream, int *, uint64_t *, CUgraph *, CUgraphNode const **, size_t *)) \
    S(StreamBatchMemOp, StreamBatchMemOp_v2, (CUstream, unsigned, CUmemOp *, unsigned)) \
    F(ThreadExchangeStreamCaptureMode, ThreadExchangeStreamCaptureMode, (int *)) \
    F(StreamDestroy, StreamDestroy_v2, (CUstream)) \
    S(StreamSynchronize, StreamSynchronize, (CUstream)) \
    S(StreamQuery, StreamQuery, (CUstream)) \
    S(StreamWaitEvent, StreamWaitEvent, (CUstream, CUevent, unsigned)) \
    S(StreamAddCallback, StreamAddCallback, (CUstream, CUstreamCallback, void *, unsigned)) \
    S(StreamBeginCapture, StreamBeginCapture_v2, (CUstream, int)) \
    S(StreamEndCapture, StreamEndCapture, (CUstream, CUgraph *)) \
    S(StreamIsCapturing, StreamIsCapturing, (CUstream, int *)) \
    S(StreamWriteValue32, StreamWriteValue32_v2, (CUstream, CUdeviceptr, uint32_t, unsigned)) \
    S(StreamWaitValue32, StreamWaitValue32_v2, (CUstream, CUdeviceptr, uint32_t, unsigned)) \
    F(EventCreate, EventCreate, (CUevent *, unsigned)) \
    F(EventDestroy, EventDestroy_v2, (CUevent)) \
    F(EventQuery, EventQuery, (CUevent)) \
    F(EventSynchronize, EventSynchronize, (CUevent)) \
    F(EventElapsedTime, EventElapsedTime, (float *, CUevent, CUevent)) \
    S(EventRecord, EventRecord, (CUevent, CUstream)) \
    F(GraphCreate, GraphCreate, (CUgraph *, unsigned)) \
    F(GraphAddKernelNode, GraphAddKernelNode_v2, \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUkernelNodeParams *)) \
    F(GraphInstantiateWithFlags, GraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
    S(GraphLaunch, GraphLaunch, (CUgraphExec, CUstream)) \
    F(GraphDestroy, GraphDestroy, (CUgraph)) \
    F(GraphExecDestroy, GraphExecDestroy, (CUgraphExec))

#define MEMBER(name, symbol, params) CUresult(*name) params;
static struct { ENTRY_POINTS(MEMBER, MEMBER, MEMBER) } cu;
static CUresult (*get_proc)(const char *, void **, int, uint64_t);
static CUresult (*get_proc2)(const char *, void **, int, uint64_t, int *);

#ifdef LINKED
#define PLAIN_LINK(name, symbol, params) extern CUresult cu##symbol params;
#define PTSZ_LINK(name, symbol, params) extern CUresult cu##symbol params, cu##symbol##_ptsz params;
#define PTDS_LINK(name, symbol, params) extern CUresult cu##symbol params, cu##symbol##_ptds params;
ENTRY_POINTS(PLAIN_LINK, PTSZ_LINK, PTDS_LINK)
#else
static void *library;
#endif

static int wants(const char *name, const char *value) {
    const char *text = getenv(name);
    return text && !strcmp(text, value);
}

static void *found(const char *name, void *function) {
    if (!function) fprintf(stderr, "no %s\n", name), exit(4);
    return function;
}

/* By name: what is asked of cuGetProcAddress has no suffix, what is asked of dlsym has. */
static inline void *look_up(const char *name, const char *symbol, const char *variant, int asked) {
    int per_thread = wants("PER_THREAD", "1");
    uint64_t flags = per_thread ? CU_LOOKUP_PER_THREAD : CU_LOOKUP_DEFAULT;
    void *function = NULL;
    if (get_proc2) {
        int status = -1;
        CUresult error = get_proc2(name, &function, asked, flags, &status);
        if (error || status) fprintf(stderr, "%s: %d, status %d\n", name, error, status);
    } else if (get_proc) {
        CUresult error = get_proc(name, &function, asked, flags);
        if (error) fprintf(stderr, "%s: %d\n", name, error);
    } else {
#ifndef LINKED
        char text[80];
        snprintf(text, sizeof text, "%s%s", symbol, per_thread ? variant : "");
        function = dlsym(library, text);
#endif
        (void)symbol, (void)variant;
    }
    return found(name, function);
}

static void reach(void) {
#ifdef LINKED
    int per_thread = wants("PER_THREAD", "1");
#define F(name, symbol, params) cu.name = cu##symbol;
#define S(name, symbol, params) cu.name = per_thread ? cu##symbol##_ptsz : cu##symbol;
#define D(name, symbol, params) cu.name = per_thread ? cu##symbol##_ptds : cu##symbol;
#else
    int version = getenv("VERSION") ? atoi(getenv("VERSION")) : 12000;
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror()), exit(4);
    if (wants("VIA", "proc")) get_proc = found("cuGetProcAddress", dlsym(library, "cuGetProcAddress"));
    if (wants("VIA", "proc2")) get_proc2 = found("cuGetProcAddress_v2", dlsym(library, "cuGetProcAddress_v2"));
#define F(name, symbol, params) cu.name = look_up("cu" #name, "cu" #symbol, "", version);
#define S(name, symbol, params) cu.name = look_up("cu" #name, "cu" #symbol, "_ptsz", version);
#define D(name, symbol, params) cu.name = look_up("cu" #name, "cu" #symbol, "_ptds", version);
#endif
    ENTRY_POINTS(F, S, D)
#undef F
#undef S
#undef D
}

#define CK(call) \
    do { \
        CUresult e_ = (call); \
        if (e_) fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, e_), exit(3); \
    } while (0)

static CUcontext context;
static CUmodule module;

#define KERNELS "softcuda\nkernel spin_us\nkernel spin_clusters\nkernel ncclDevKernel_spin\nkernel add\nkernel saxpy\nkernel crash\nglobal counter 64\n"

/* IMAGE names a file with the kernels of kernels.cu, compiled: then these programs run on a real GPU. */
static inline const char *image(void) {
    static char text[1 << 20];
    const char *path = getenv("IMAGE");
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (!path) return KERNELS;
    if (!file || !fread(text, 1, sizeof text - 1, file)) fprintf(stderr, "no %s\n", path), exit(4);
    fclose(file);
    return text;
}

static inline void begin(void) {
    CUdevice device;
    reach();
    CK(cu.Init(0));
    CK(cu.DeviceGet(&device, getenv("DEVICE") ? atoi(getenv("DEVICE")) : 0));
    CK(cu.DevicePrimaryCtxRetain(&context, device));
    CK(cu.CtxSetCurrent(context));
    CK(cu.ModuleLoadData(&module, image()));
}

static inline CUfunction kernel(const char *name) {
    CUfunction f;
    CK(cu.ModuleGetFunction(&f, module, name));
    return f;
}

static inline CUresult spin(CUfunction f, CUstream s, CUdeviceptr out, uint32_t us, uint32_t n, uint32_t mix) {
    void *params[] = {&out, &us, &n, &mix};
    return cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, params, NULL);
}
