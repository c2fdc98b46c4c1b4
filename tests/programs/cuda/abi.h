/* The part of the CUDA driver API's binary interface that the software driver and its test programs
 * speak: written from the public reference, no toolkit needed. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct ctx *CUcontext;
typedef struct module *CUmodule;
typedef struct module *CUlibrary;
typedef struct function *CUfunction;
typedef struct function *CUkernel;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct green *CUgreenCtx;
typedef struct graph *CUgraph;
typedef struct graph *CUgraphExec;
typedef struct op *CUgraphNode;
typedef struct { char bytes[16]; } CUuuid;
typedef void (*CUhostFn)(void *data);
typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *data);

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_CAPTURED_EVENT = 907,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)
enum { CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING };
enum { CU_EVENT_DEFAULT, CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING };
enum { CU_CAPTURE_GLOBAL, CU_CAPTURE_THREAD_LOCAL, CU_CAPTURE_RELAXED };
enum { CU_CAPTURE_NONE, CU_CAPTURE_ACTIVE, CU_CAPTURE_INVALIDATED };
enum { CU_WAIT_GEQ, CU_WAIT_EQ, CU_WAIT_AND, CU_WAIT_NOR };
enum { CU_OP_WAIT32 = 1, CU_OP_WRITE32 = 2, CU_OP_WAIT64 = 4, CU_OP_WRITE64 = 5, CU_OP_BARRIER = 6 };
enum { CU_LOOKUP_DEFAULT, CU_LOOKUP_LEGACY, CU_LOOKUP_PER_THREAD };
enum { CU_LOOKUP_SUCCESS, CU_LOOKUP_NOT_FOUND, CU_LOOKUP_VERSION };
enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE, CU_MEMORY_ARRAY, CU_MEMORY_UNIFIED };
#define CU_LAUNCH_END ((void *)0)
#define CU_LAUNCH_BUFFER ((void *)1)
#define CU_LAUNCH_SIZE ((void *)2)

typedef struct {
    unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
    CUstream stream;
    void *attributes;
    unsigned attributeCount;
} CUlaunchConfig;

typedef struct { /* version 1 ends before kernel */
    CUfunction function;
    unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
    void **params, **extra;
    CUkernel kernel;
    CUcontext context;
} CUkernelNodeParams;

typedef struct {
    size_t srcX, srcY;
    unsigned srcType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    void *srcArray;
    size_t srcPitch, dstX, dstY;
    unsigned dstType;
    void *dstHost;
    CUdeviceptr dstDevice;
    void *dstArray;
    size_t dstPitch, width, height;
} CUcopy2D;

typedef union {
    unsigned operation;
    struct {
        unsigned operation;
        CUdeviceptr address;
        uint64_t value;
        unsigned flags;
        CUdeviceptr alias;
    } value;
    uint64_t pad[6];
} CUmemOp;

typedef struct { uint64_t flags; CUstream upload; CUgraphNode error; unsigned result; } CUinstantiateParams;

typedef struct { int id; char pad[4], value[64]; } CUlaunchAttribute;

typedef struct CUdevResource {
    int type;
    char internal[92];
    union { unsigned smCount; char space[40]; };
    struct CUdevResource *next;
} CUdevResource, *CUdevResourceDesc;

/* What cuLaunchKernel takes in a CUDA 14 that nobody has seen. */
typedef struct { uint64_t size; CUfunction function; CUstream stream; void **params; } CUfutureLaunch;
