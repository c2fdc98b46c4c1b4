/* What a CUDA driver promises, asked by an ordinary program: one check per run, by name.
 *
 *     checks NAME         exit code 0: as promised; otherwise what was not, a line each
 *     checks              the names
 *
 * No check depends on time: gates that the CPU opens hold streams back. */
#include "reach.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 16 };
static int failures;
static CUfunction spin_us;
static CUdeviceptr memory;
static volatile uint32_t *gate; /* streams wait for it to be 1 */

#define IS(call, wanted) \
    do { \
        long long is_ = (long long)(call), wanted_ = (long long)(wanted); \
        if (is_ != wanted_) failures++, printf("line %d: %s is %lld, not %lld\n", __LINE__, #call, is_, wanted_); \
    } while (0)

static CUstream stream(unsigned flags) {
    CUstream s;
    CK(cu.StreamCreate(&s, flags));
    return s;
}

static CUevent event(void) {
    CUevent e;
    CK(cu.EventCreate(&e, CU_EVENT_DEFAULT));
    return e;
}

static void start(void) {
    begin();
    spin_us = kernel("spin_us");
    CK(cu.MemAlloc(&memory, N * 4));
    CK(cu.MemsetD32(memory, 0, N));
    CK(cu.MemHostAlloc((void **)&gate, 4096, 0));
    *gate = 0;
    CK(cu.CtxSynchronize());
}

static void close_gate(CUstream s) {
    *gate = 0;
    CK(cu.StreamWaitValue32(s, (uintptr_t)gate, 1, CU_WAIT_EQ));
}

static void open_gate(void) { __atomic_store_n(gate, 1, __ATOMIC_RELEASE); }

/* Whatever is not held back is done now, if it is wrong or not: this was submitted after it, and it is done. */
static void settle(void) {
    CUstream s = stream(CU_STREAM_NON_BLOCKING);
    CK(spin(spin_us, s, (uintptr_t)gate + 2048, 10, N, 0));
    CK(cu.StreamSynchronize(s));
    CK(cu.StreamDestroy(s));
}

static void mix(CUstream s, uint32_t number) { CK(spin(spin_us, s, memory, 100, N, number)); }

/* What the kernels with these numbers, in this order, make of the first word. */
static uint32_t mixed(const char *numbers) {
    uint32_t x = 0;
    for (; *numbers; numbers++) x = (x ^ (uint32_t)(*numbers - '0')) * 1664525u + 1013904223u;
    return x;
}

static uint32_t result(void) {
    uint32_t words[N];
    CK(cu.MemcpyDtoH(words, memory, sizeof words));
    return words[0];
}

static void check_order(void) {
    start();
    CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
    CUevent e = event();
    close_gate(a);
    for (uint32_t i = 1; i < 5; i++) mix(a, i);
    CK(cu.EventRecord(e, a));
    CK(cu.StreamWaitEvent(b, e, 0));
    mix(b, 5); /* in another stream, yet after the first four */
    settle();
    IS(cu.StreamQuery(a), CUDA_ERROR_NOT_READY);
    IS(cu.StreamQuery(b), CUDA_ERROR_NOT_READY);
    IS(cu.EventQuery(e), CUDA_ERROR_NOT_READY);
    open_gate();
    IS(cu.EventSynchronize(e), CUDA_SUCCESS);
    IS(cu.StreamSynchronize(b), CUDA_SUCCESS);
    IS(cu.StreamQuery(a), CUDA_SUCCESS);
    IS(result(), mixed("12345"));
    IS(cu.StreamDestroy(a), CUDA_SUCCESS);
    IS(cu.StreamQuery(a), CUDA_ERROR_INVALID_HANDLE);
}

static void check_legacy(void) {
    start();
    CUstream blocking = stream(CU_STREAM_DEFAULT), free = stream(CU_STREAM_NON_BLOCKING);
    close_gate(blocking);
    mix(blocking, 1);
    mix(CU_STREAM_LEGACY, 2);
    mix(blocking, 3);
    settle();
    CK(cu.MemsetD8Async(memory + 4, 7, 1, free));
    IS(cu.StreamSynchronize(free), CUDA_SUCCESS); /* it waits for nobody */
    IS(cu.StreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    open_gate();
    IS(cu.StreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
    IS(result(), mixed("123"));
    close_gate(free);
    mix(CU_STREAM_LEGACY, 4);
    IS(cu.StreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS); /* and nobody for it */
    IS(cu.StreamQuery(free), CUDA_ERROR_NOT_READY);
    open_gate();
    IS(cu.CtxSynchronize(), CUDA_SUCCESS);
    IS(result(), mixed("1234"));
    close_gate(CU_STREAM_LEGACY);
    mix(CU_STREAM_LEGACY, 5);
    mix(blocking, 6); /* a blocking stream waits for it as well */
    settle();
    IS(cu.StreamQuery(blocking), CUDA_ERROR_NOT_READY);
    open_gate();
    IS(cu.StreamSynchronize(blocking), CUDA_SUCCESS);
    IS(result(), mixed("123456"));
}

static void *in_other_thread(void *unused) {
    (void)unused;
    CK(cu.CtxSetCurrent(context));
    IS(cu.StreamQuery(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    mix(CU_STREAM_PER_THREAD, 1);
    IS(cu.StreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    return NULL;
}

static void check_threads(void) {
    pthread_t other;
    start();
    close_gate(CU_STREAM_PER_THREAD);
    mix(CU_STREAM_PER_THREAD, 2);
    pthread_create(&other, NULL, in_other_thread, NULL);
    pthread_join(other, NULL);
    IS(cu.StreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    /* NULL is this thread's own stream in a program compiled so, otherwise the one that waits for it. */
    mix(NULL, 3);
    settle();
    IS(cu.StreamQuery(NULL), CUDA_ERROR_NOT_READY);
    open_gate();
    IS(cu.StreamSynchronize(NULL), CUDA_SUCCESS);
    IS(result(), mixed("123"));
}

static void check_events(void) {
    float ms = 0;
    start();
    CUevent before = event(), after = event(), fresh = event();
    CUstream s = stream(CU_STREAM_DEFAULT);
    IS(cu.EventQuery(fresh), CUDA_SUCCESS);
    IS(cu.StreamWaitEvent(s, fresh, 0), CUDA_SUCCESS);
    IS(cu.EventElapsedTime(&ms, before, fresh), CUDA_ERROR_INVALID_HANDLE);
    CK(cu.EventRecord(before, s));
    CK(spin(spin_us, s, memory, 3000, N, 1));
    CK(cu.EventRecord(after, s));
    IS(cu.EventElapsedTime(&ms, before, after), CUDA_ERROR_NOT_READY);
    IS(cu.EventSynchronize(after), CUDA_SUCCESS);
    IS(cu.EventElapsedTime(&ms, before, after), CUDA_SUCCESS);
    IS(ms >= 3, 1);
    CK(cu.EventRecord(fresh, s));
    IS(cu.EventDestroy(fresh), CUDA_SUCCESS); /* while it is in use */
    IS(cu.EventQuery(fresh), CUDA_ERROR_INVALID_HANDLE);
    IS(cu.StreamSynchronize(s), CUDA_SUCCESS);
}

static void check_values(void) {
    uint32_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr address;
    pid_t child = fork(); /* before CUDA: each has a driver of its own */
    start();
    CUstream s = stream(CU_STREAM_NON_BLOCKING);
    IS(cu.StreamWriteValue32(s, (uintptr_t)shared, 1, 0), CUDA_ERROR_INVALID_VALUE); /* not registered */
    CK(cu.MemHostRegister(shared, 4096, 0));
    IS(cu.MemHostRegister(shared, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CK(cu.MemHostGetDevicePointer(&address, shared, 0));
    IS(cu.StreamWriteValue32(s, address + 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    int me = child ? 0 : 1;
    for (uint32_t round = 1; round <= 5; round++) { /* the streams of two processes take turns */
        CK(cu.StreamWaitValue32(s, address, 2 * round - 2 + (uint32_t)me, CU_WAIT_GEQ));
        mix(s, round);
        CK(cu.StreamWriteValue32(s, address, 2 * round - 1 + (uint32_t)me, 0));
    }
    IS(cu.StreamSynchronize(s), CUDA_SUCCESS);
    IS(result(), mixed("12345"));
    if (!child) exit(failures);
    int status;
    waitpid(child, &status, 0);
    IS(status, 0);
    IS(*shared, 10);
}

static void check_no_values(void) {
    int able = -1;
    reach();
    CK(cu.Init(0));
    CK(cu.DeviceGetAttribute(&able, 92, 0));
    IS(able, 0);
    begin();
    CK(cu.MemAlloc(&memory, 4));
    IS(cu.StreamWriteValue32(NULL, memory, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
    IS(cu.StreamWaitValue32(NULL, memory, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
}

static void check_memory(void) {
    enum { BIG = 1 << 20 };
    static unsigned char data[BIG], back[BIG];
    CUdeviceptr block, none = 0x1234;
    start();
    CUstream s = stream(CU_STREAM_NON_BLOCKING);
    CK(cu.MemAlloc(&block, BIG));
    for (int i = 0; i < BIG; i++) data[i] = (unsigned char)(i * 7 + i / 251);
    close_gate(s);
    CK(cu.MemcpyHtoDAsync(block, data, BIG, s));
    memset(data, 0, 100); /* the program may use its memory again */
    open_gate();
    CK(cu.MemcpyDtoHAsync(back, block, BIG, s)); /* there when the call comes back: it is pageable */
    IS(back[99], (unsigned char)(99 * 7));
    IS(memcmp(back + 100, data + 100, BIG - 100), 0);
    CUcopy2D c = {.srcType = CU_MEMORY_DEVICE, .srcDevice = block, .srcPitch = 100, .srcX = 3, .srcY = 2,
                  .dstType = CU_MEMORY_HOST, .dstHost = back, .dstPitch = 10, .width = 10, .height = 5};
    CK(cu.Memcpy2D(&c));
    IS(back[3 * 10 + 4], data[(2 + 3) * 100 + 3 + 4]);
    CK(cu.Memcpy((uintptr_t)back, block + 500, 10));
    IS(memcmp(back, data + 500, 10), 0);
    IS(cu.MemcpyHtoD(none, data, 4), CUDA_ERROR_INVALID_VALUE);
    IS(cu.MemcpyHtoD(block + BIG - 2, data, 4), CUDA_ERROR_INVALID_VALUE);
    IS(cu.MemFree(block + 4), CUDA_ERROR_INVALID_VALUE);
    IS(cu.MemFree(block), CUDA_SUCCESS);
    IS(cu.MemFree(block), CUDA_ERROR_INVALID_VALUE);
    CK(cu.MemAllocAsync(&block, 4096, s));
    CK(spin(spin_us, s, block, 10, N, 1));
    IS(cu.MemFreeAsync(block, s), CUDA_SUCCESS);
    IS(cu.MemFreeAsync(block, s), CUDA_ERROR_INVALID_VALUE);
    IS(cu.StreamSynchronize(s), CUDA_SUCCESS);
    IS(cu.MemAlloc(&block, 1ull << 50), CUDA_ERROR_OUT_OF_MEMORY);
    IS(result(), mixed("")); /* and nothing is broken by it */
}

/* Large copies and sets: all of the bytes, and none of a copy that is refused. */
static void check_large(void) {
    enum { LARGE = (5 << 20) + 4 * 1237 };
    static unsigned char data[LARGE], back[LARGE];
    CUdeviceptr block, other;
    start();
    CUstream s = stream(CU_STREAM_NON_BLOCKING);
    CK(cu.MemAlloc(&block, LARGE));
    CK(cu.MemAlloc(&other, LARGE));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < LARGE; i++) data[i] = (unsigned char)(i * 7 + i / 251 + round);
        CK(cu.MemcpyHtoDAsync(block, data, LARGE, s));
        CK(cu.StreamSynchronize(s));
        CK(cu.MemcpyDtoD(other, block, LARGE));
        CK(cu.MemsetD32(block, 0x01020304, LARGE / 4));
        CK(cu.CtxSynchronize());
        CK(cu.MemcpyDtoHAsync(back, other, LARGE, s));
        CK(cu.StreamSynchronize(s));
        IS(memcmp(back, data, LARGE), 0);
        CK(cu.MemcpyDtoH(back, block, LARGE));
        for (int i = 0; i < LARGE; i += 4) data[i] = 4, data[i + 1] = 3, data[i + 2] = 2, data[i + 3] = 1;
        IS(memcmp(back, data, LARGE), 0);
        CK(cu.MemsetD8Async(other, 9, LARGE - 1, s));
        CK(cu.MemcpyAsync(block, other, LARGE, s));
        CK(cu.StreamSynchronize(s));
        CK(cu.Memcpy((uintptr_t)back, block, LARGE));
        IS(back[0] + back[LARGE / 2] + back[LARGE - 2], 3 * 9);
        memset(data, 1, LARGE);
        IS(cu.MemcpyHtoD(block + 16, data, LARGE), CUDA_ERROR_INVALID_VALUE);
        CK(cu.MemcpyDtoH(back, block, LARGE));
        IS(back[16], 9);
    }
}

static void check_kernels(void) {
    CUdeviceptr a, b, c;
    uint32_t words[N], n = N;
    float numbers[N], factor = 1.5f;
    start();
    CK(cu.MemAlloc(&a, N * 4));
    CK(cu.MemAlloc(&b, N * 4));
    CK(cu.MemAlloc(&c, N * 4));
    CK(cu.MemsetD32(a, 40, N));
    CK(cu.MemsetD32(b, 2, N));
    void *sum[] = {&c, &a, &b, &n}, *line[] = {&a, &b, &factor, &n};
    CK(cu.LaunchKernel(kernel("add"), 1, 1, 1, 1, 1, 1, 0, NULL, sum, NULL));
    CK(cu.MemcpyDtoH(words, c, sizeof words));
    IS(words[0] + words[N - 1], 84);
    for (int i = 0; i < N; i++) numbers[i] = (float)i;
    CK(cu.MemcpyHtoD(a, numbers, sizeof numbers));
    CK(cu.MemcpyHtoD(b, numbers, sizeof numbers));
    CK(cu.LaunchKernel(kernel("saxpy"), 1, 1, 1, 1, 1, 1, 0, NULL, line, NULL));
    CK(cu.MemcpyDtoH(numbers, a, sizeof numbers));
    IS(numbers[4] == 10, 1);
}

static char seen[16];
static pthread_t caller;

static void host_function(void *data) {
    caller = pthread_self();
    strcat(seen, data);
    if (cu.StreamQuery(NULL) != CUDA_ERROR_NOT_PERMITTED) strcat(seen, "!");
}

static void callback(CUstream s, CUresult status, void *data) {
    (void)s;
    strcat(seen, status ? "e" : data);
}

static void check_callbacks(void) {
    start();
    CUstream s = stream(CU_STREAM_NON_BLOCKING);
    close_gate(s);
    CK(cu.LaunchHostFunc(s, host_function, "a"));
    CK(cu.StreamAddCallback(s, callback, "b", 0));
    mix(s, 1);
    CK(cu.LaunchHostFunc(s, host_function, "c"));
    settle();
    IS(seen[0], 0);
    open_gate();
    IS(cu.StreamSynchronize(s), CUDA_SUCCESS);
    IS(strcmp(seen, "abc"), 0);
    IS(pthread_equal(caller, pthread_self()), 0);
}

static void check_errors(void) {
    CUdeviceptr p;
    CUmodule m;
    CUfunction f;
    CUlibrary l;
    CUkernel k;
    size_t size;
    uint32_t n = 1;
    reach();
    IS(cu.MemAlloc(&p, 4), CUDA_ERROR_NOT_INITIALIZED);
    IS(cu.StreamSynchronize(NULL), CUDA_ERROR_NOT_INITIALIZED);
    IS(cu.Init(1), CUDA_ERROR_INVALID_VALUE);
    CK(cu.Init(0));
    IS(cu.MemAlloc(&p, 4), CUDA_ERROR_INVALID_CONTEXT);
    IS(cu.StreamSynchronize(NULL), CUDA_ERROR_INVALID_CONTEXT);
    start();
    void *params[] = {&memory, &n, &n, &n};
    IS(cu.ModuleLoadData(&m, "nonsense"), CUDA_ERROR_INVALID_IMAGE);
    IS(cu.ModuleGetFunction(&f, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    IS(cu.ModuleGetGlobal(&p, &size, module, "counter"), CUDA_SUCCESS);
    IS(size, 64);
    IS(cu.StreamSynchronize((CUstream)&n), CUDA_ERROR_INVALID_HANDLE);
    IS(cu.LaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);
    IS(cu.LaunchKernel(spin_us, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
    IS(cu.LaunchKernel(spin_us, 1, 1, 1, 2048, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
    IS(cu.LaunchKernel(spin_us, 1, 1, 1, 1, 1, 1, 0, (CUstream)&n, params, NULL), CUDA_ERROR_INVALID_HANDLE);
    IS(cu.EventRecord((CUevent)&n, NULL), CUDA_ERROR_INVALID_HANDLE);
    IS(cu.CtxSynchronize(), CUDA_SUCCESS); /* none of this is sticky */
    CK(cu.LibraryLoadData(&l, image(), NULL, NULL, 0, NULL, NULL, 0));
    CK(cu.LibraryGetKernel(&k, l, "spin_us"));
    CK(cu.KernelGetFunction(&f, k));
    CK(spin(f, NULL, memory, 10, N, 1));
    CK(spin((CUfunction)k, NULL, memory, 10, N, 2));
    IS(result(), mixed("12"));
    IS(cu.ModuleUnload(module), CUDA_SUCCESS);
    IS(cu.LaunchKernel(spin_us, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);
}

static void check_crash(void) {
    CUdeviceptr p;
    start();
    CUstream s = stream(CU_STREAM_NON_BLOCKING), other = stream(CU_STREAM_NON_BLOCKING);
    close_gate(s);
    CK(cu.LaunchKernel(kernel("crash"), 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL)); /* the launch itself is fine */
    CK(cu.StreamAddCallback(s, callback, "b", 0));
    mix(s, 1);
    open_gate();
    IS(cu.StreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(strcmp(seen, "e"), 0);
    IS(cu.StreamSynchronize(other), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cu.CtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cu.MemAlloc(&p, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(spin(spin_us, s, memory, 1, N, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void check_bad_address(void) {
    start();
    CK(spin(spin_us, NULL, 0xdead0000, 1, N, 1));
    IS(cu.StreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cu.MemsetD32(memory, 0, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void check_destroyed(void) {
    start();
    CUstream s = stream(CU_STREAM_DEFAULT);
    close_gate(s);
    mix(s, 1); /* never gets its turn */
    CK(cu.DevicePrimaryCtxRelease(0));
    IS(cu.StreamSynchronize(s), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    IS(spin(spin_us, NULL, memory, 1, N, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CK(cu.CtxSetCurrent(NULL));
    IS(cu.CtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    start(); /* and life goes on in a new one */
    mix(NULL, 1);
    IS(result(), mixed("1"));
}

static void check_contexts(void) {
    CUcontext other, top;
    CUdevice device = -1;
    CUdeviceptr p;
    CUuuid id = {{0}};
    const void *table = &id;
    const char *name = NULL;
    char text[64];
    unsigned flags;
    int active = -1, count = 0;
    size_t total = 0;
    reach();
    CK(cu.Init(0));
    CK(cu.DevicePrimaryCtxGetState(0, &flags, &active));
    IS(active, 0);
    start();
    CK(cu.DevicePrimaryCtxGetState(0, &flags, &active));
    IS(active, 1);
    CK(cu.DeviceGetCount(&count));
    IS(count >= 1, 1);
    CK(cu.DeviceGetName(text, sizeof text, 0));
    CK(cu.DeviceTotalMem(&total, 0));
    IS(total > 0 && text[0], 1);
    IS(cu.DeviceGet(&device, 99), CUDA_ERROR_INVALID_DEVICE);
    CK(cu.CtxCreate(&other, NULL, 0, 0, 0)); /* and it is current now */
    CK(cu.CtxGetCurrent(&top));
    IS(top == other, 1);
    CK(cu.CtxGetDevice(&device));
    IS(device, 0);
    CK(cu.MemAlloc(&p, 4));
    CK(cu.CtxPopCurrent(&top));
    IS(top == other, 1);
    mix(NULL, 1);
    CK(cu.CtxPushCurrent(other));
    CK(cu.CtxDestroy(other));
    CK(cu.CtxGetCurrent(&top));
    IS(top == context, 1);
    IS(result(), mixed("1"));
    CK(cu.GetErrorName(CUDA_ERROR_NOT_READY, &name));
    IS(strcmp(name, "CUDA_ERROR_NOT_READY"), 0);
    IS(cu.GetErrorName(12345, &name), CUDA_ERROR_INVALID_VALUE);
    IS(cu.GetExportTable(&table, &id) != CUDA_SUCCESS, 1);
}

/* Two devices: each has its own work, and the default streams of their contexts are two streams. */
static void check_devices(void) {
    CUcontext other;
    CUdevice device = -1;
    CUuuid ids[2];
    char places[2][16];
    int count = 0;
    start();
    CK(cu.DeviceGetCount(&count));
    IS(count, 2);
    for (int i = 0; i < 2; i++) {
        CK(cu.DeviceGetUuid(&ids[i], i));
        CK(cu.DeviceGetPCIBusId(places[i], sizeof places[i], i));
    }
    IS(memcmp(&ids[0], &ids[1], sizeof *ids) != 0, 1);
    IS(strcmp(places[0], places[1]) != 0, 1);
    IS(cu.DevicePrimaryCtxRetain(&other, 2), CUDA_ERROR_INVALID_DEVICE);
    CK(cu.DevicePrimaryCtxRetain(&other, 1));
    CUstream here = stream(CU_STREAM_NON_BLOCKING);
    CUevent done = event();
    close_gate(NULL);
    mix(NULL, 1);
    CK(cu.EventRecord(done, NULL));
    CK(cu.CtxSetCurrent(other));
    CK(cu.CtxGetDevice(&device));
    IS(device, 1);
    CUstream there = stream(CU_STREAM_NON_BLOCKING);
    CUfunction f = spin_us;
    CUdeviceptr words;
    CK(cu.MemAlloc(&words, N * 4));
    CK(cu.MemsetD32(words, 0, N));
    CK(spin(f, NULL, words, 100, N, 2));
    CK(cu.StreamSynchronize(NULL));
    IS(cu.StreamQuery(NULL), CUDA_SUCCESS);
    IS(spin(f, here, words, 100, N, 3), CUDA_ERROR_INVALID_HANDLE);
    IS(cu.StreamWriteValue32(here, (uintptr_t)gate, 1, 0), CUDA_ERROR_INVALID_HANDLE);
    IS(cu.EventRecord(done, there), CUDA_ERROR_INVALID_HANDLE);
    IS(cu.EventQuery(done), CUDA_ERROR_NOT_READY);
    CK(cu.StreamWaitEvent(there, done, 0));
    CK(spin(f, there, words, 100, N, 4));
    IS(cu.StreamQuery(there), CUDA_ERROR_NOT_READY);
    CK(cu.CtxSetCurrent(context));
    IS(cu.StreamQuery(NULL), CUDA_ERROR_NOT_READY);
    open_gate();
    CK(cu.StreamSynchronize(there));
    IS(cu.StreamQuery(NULL), CUDA_SUCCESS);
    CK(cu.DevicePrimaryCtxRelease(1));
}

static void check_streams(void) {
    CUstream s;
    CUcontext owner;
    unsigned flags;
    int priority, status, mode = CU_CAPTURE_RELAXED;
    unsigned long long first, second;
    uint64_t id = 0;
    size_t count = 9;
    CUgraph graph = NULL;
    CUdeviceptr copy;
    CUgraphNode const *nodes;
    start();
    CK(cu.MemAlloc(&copy, N * 4));
    CK(cu.StreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, -2));
    CK(cu.StreamGetFlags(s, &flags));
    IS(flags, CU_STREAM_NON_BLOCKING);
    CK(cu.StreamGetPriority(s, &priority));
    IS(priority, -2);
    CK(cu.StreamGetCtx(s, &owner));
    IS(owner == context, 1);
    CK(cu.StreamGetId(s, &first));
    CK(cu.StreamGetId(CU_STREAM_PER_THREAD, &second));
    IS(first != second, 1);
    CUmemOp ops[] = {
        {.value = {.operation = CU_OP_WAIT64, .address = (uintptr_t)gate, .value = 1ull << 40, .flags = CU_WAIT_GEQ}},
        {.value = {.operation = CU_OP_WRITE64, .address = (uintptr_t)gate + 8, .value = 1ull << 41}},
    };
    memset((void *)gate, 0, 16);
    CK(cu.StreamBatchMemOp(s, 2, ops, 0));
    mix(s, 1);
    CK(cu.MemcpyAsync(copy, memory, N * 4, s));
    settle();
    CK(cu.StreamGetCaptureInfo(s, &status, &id, &graph, &nodes, &count));
    IS(status, CU_CAPTURE_NONE);
    IS(cu.StreamQuery(s), CUDA_ERROR_NOT_READY);
    IS(((volatile uint64_t *)gate)[1], 0);
    __atomic_store_n((volatile uint64_t *)gate, 1ull << 40, __ATOMIC_RELEASE);
    IS(cu.StreamSynchronize(s), CUDA_SUCCESS);
    IS(((volatile uint64_t *)gate)[1], 1ull << 41);
    ops[0].operation = 77;
    IS(cu.StreamBatchMemOp(s, 2, ops, 0), CUDA_ERROR_INVALID_VALUE);
    CK(cu.MemsetD32(memory, 0, N));
    CK(cu.MemcpyDtoD(memory, copy, N * 4));
    IS(result(), mixed("1"));
    CK(cu.StreamBeginCapture(s, CU_CAPTURE_THREAD_LOCAL));
    mix(s, 2);
    CK(cu.StreamGetCaptureInfo(s, &status, &id, &graph, &nodes, &count));
    IS(status, CU_CAPTURE_ACTIVE);
    IS(count, 1);
    CK(cu.ThreadExchangeStreamCaptureMode(&mode)); /* this thread knows what it does */
    IS(mode, CU_CAPTURE_GLOBAL);
    IS(cu.MemFree(copy), CUDA_SUCCESS);
    CK(cu.StreamEndCapture(s, &graph));
    IS(cu.StreamDestroy(s), CUDA_SUCCESS);
    IS(cu.StreamDestroy(s), CUDA_ERROR_INVALID_HANDLE);
    IS(cu.StreamDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
}

static void check_fork(void) {
    int status;
    start();
    mix(NULL, 1);
    pid_t child = fork();
    if (!child) {
        IS(cu.Init(0), CUDA_ERROR_NOT_INITIALIZED);
        IS(cu.CtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
        _exit(failures);
    }
    waitpid(child, &status, 0);
    IS(status, 0);
    mix(NULL, 2);
    IS(result(), mixed("12"));
}

static void check_graphs(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    uint32_t us = 10, n = N, number = 3;
    start();
    CUstream s = stream(CU_STREAM_DEFAULT), side = stream(CU_STREAM_NON_BLOCKING);
    CUevent forked = event(), joined = event();
    CK(cu.StreamBeginCapture(s, CU_CAPTURE_GLOBAL));
    mix(s, 1);
    CK(cu.EventRecord(forked, s));
    CK(cu.StreamWaitEvent(side, forked, 0));
    mix(side, 2);
    CK(cu.EventRecord(joined, side));
    CK(cu.StreamWaitEvent(s, joined, 0));
    mix(s, 3);
    CK(cu.StreamEndCapture(s, &graph));
    IS(cu.StreamQuery(s), CUDA_SUCCESS);
    IS(result(), mixed("")); /* nothing was done yet */
    CK(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    CK(cu.GraphDestroy(graph));
    CK(cu.GraphLaunch(exec, s));
    mix(s, 4);
    CK(cu.GraphLaunch(exec, s));
    IS(cu.StreamSynchronize(s), CUDA_SUCCESS);
    IS(result(), mixed("1234123"));
    CK(cu.GraphExecDestroy(exec));
    IS(cu.GraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
    void *params[] = {&memory, &us, &n, &number};
    CUkernelNodeParams p = {spin_us, 1, 1, 1, 1, 1, 1, 0, params, NULL, NULL, NULL};
    CK(cu.GraphCreate(&graph, 0));
    CK(cu.GraphAddKernelNode(&node, graph, NULL, 0, &p));
    number = 5;
    CK(cu.GraphAddKernelNode(&node, graph, &node, 1, &p));
    CK(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    CK(cu.GraphLaunch(exec, s));
    IS(cu.StreamSynchronize(s), CUDA_SUCCESS);
    IS(result(), mixed("123412335"));
}

/* Begin a capture, make a call that is not allowed in it, and see the capture spoilt, or not. */
#define SPOILS(stream, mode, call, error, spoilt) \
    do { \
        CUgraph graph_ = NULL; \
        int status_ = -1; \
        CK(cu.StreamBeginCapture(stream, mode)); \
        mix(stream, 1); \
        IS(call, error); \
        CK(cu.StreamIsCapturing(stream, &status_)); \
        IS(status_, (spoilt) ? CU_CAPTURE_INVALIDATED : CU_CAPTURE_ACTIVE); \
        if (spoilt) IS(spin(spin_us, stream, memory, 1, N, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED); \
        IS(cu.StreamEndCapture(stream, &graph_), (spoilt) ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS); \
        IS(graph_ != NULL, !(spoilt)); \
    } while (0)

static CUstream captured;
static CUresult from_thread;
static CUdeviceptr from_thread_memory;

static void *end_elsewhere(void *unused) {
    CUgraph graph;
    CK(cu.CtxSetCurrent(context));
    from_thread = cu.StreamEndCapture(captured, &graph);
    return unused;
}

static void *allocate_elsewhere(void *unused) {
    CK(cu.CtxSetCurrent(context));
    from_thread = cu.MemAlloc(&from_thread_memory, 4);
    return unused;
}

static CUresult elsewhere(void *(*function)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, function, NULL);
    pthread_join(thread, NULL);
    return from_thread;
}

static void check_captures(void) {
    CUgraph graph;
    CUdeviceptr p;
    int status;
    uint32_t word;
    start();
    CUstream blocking = stream(CU_STREAM_DEFAULT), free = stream(CU_STREAM_NON_BLOCKING);
    CUstream other = stream(CU_STREAM_NON_BLOCKING);
    CUevent e = event(), outside = event();
    CK(cu.EventRecord(outside, other));
    IS(cu.StreamBeginCapture(CU_STREAM_LEGACY, CU_CAPTURE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    IS(cu.StreamEndCapture(free, &graph), CUDA_ERROR_ILLEGAL_STATE);
    for (int mode = CU_CAPTURE_GLOBAL; mode <= CU_CAPTURE_RELAXED; mode++) {
        int strict = mode != CU_CAPTURE_RELAXED, all = mode == CU_CAPTURE_GLOBAL;
        CUresult unsafe = strict ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
        SPOILS(free, mode, cu.StreamSynchronize(free), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 1);
        SPOILS(free, mode, cu.StreamQuery(free), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 1);
        SPOILS(free, mode, cu.StreamWaitEvent(free, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 1);
        SPOILS(free, mode, cu.MemAlloc(&p, 4), unsafe, strict);
        SPOILS(free, mode, elsewhere(allocate_elsewhere), all ? unsafe : CUDA_SUCCESS, all);
        /* The legacy stream would wait for a blocking stream, not for a non-blocking one. */
        SPOILS(blocking, mode, spin(spin_us, CU_STREAM_LEGACY, memory, 1, N, 9), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 1);
        SPOILS(blocking, mode, cu.StreamSynchronize(CU_STREAM_LEGACY), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 1);
        if (wants("PER_THREAD", "1")) /* on another stream, but it waits */
            SPOILS(blocking, mode, cu.MemcpyDtoH(&word, memory, 4), unsafe, strict);
        else SPOILS(blocking, mode, cu.MemcpyDtoH(&word, memory, 4), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 1);
        SPOILS(free, mode, spin(spin_us, CU_STREAM_LEGACY, memory, 1, N, 9), CUDA_SUCCESS, 0);
        SPOILS(free, mode, cu.StreamSynchronize(other), CUDA_SUCCESS, 0);
        /* To ask is allowed, but there is no answer. */
        SPOILS(blocking, mode, cu.StreamIsCapturing(CU_STREAM_LEGACY, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 0);
        SPOILS(free, mode, cu.StreamBeginCapture(free, mode), CUDA_ERROR_ILLEGAL_STATE, 0);
    }
    SPOILS(free, CU_CAPTURE_GLOBAL, cu.EventRecord(e, free) + cu.EventQuery(e), CUDA_ERROR_CAPTURED_EVENT, 0);
    captured = free;
    SPOILS(free, CU_CAPTURE_GLOBAL, elsewhere(end_elsewhere), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 0);
    CK(cu.StreamBeginCapture(free, CU_CAPTURE_GLOBAL));
    CK(cu.EventRecord(e, free));
    CK(cu.StreamWaitEvent(other, e, 0));
    mix(other, 1); /* and no way back */
    IS(cu.StreamEndCapture(free, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    IS(cu.StreamSynchronize(other), CUDA_SUCCESS);
    CK(cu.StreamBeginCapture(free, CU_CAPTURE_GLOBAL));
    CK(cu.StreamBeginCapture(other, CU_CAPTURE_GLOBAL));
    CK(cu.EventRecord(e, free));
    IS(cu.StreamWaitEvent(other, e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    IS(cu.StreamEndCapture(free, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    IS(cu.StreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CK(cu.StreamBeginCapture(free, CU_CAPTURE_GLOBAL));
    CK(cu.StreamDestroy(free)); /* its capture ends with it */
    IS(cu.MemAlloc(&p, 4), CUDA_SUCCESS);
    IS(cu.CtxSynchronize(), CUDA_SUCCESS);
}

static void check_lookup(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *p = NULL, *q = NULL;
    int status = -1, version;
    reach();
    CK(cu.DriverGetVersion(&version));
    get_proc = found("cuGetProcAddress", dlsym(driver, "cuGetProcAddress"));
    get_proc2 = found("cuGetProcAddress_v2", dlsym(driver, "cuGetProcAddress_v2"));
#define FINDS(name, asked, flags, symbol) \
    do { \
        IS(get_proc2(name, &p, asked, flags, &status), CUDA_SUCCESS); \
        IS(status, CU_LOOKUP_SUCCESS); \
        IS(get_proc(name, &q, asked, flags), CUDA_SUCCESS); \
        IS(p == q && p == dlsym(driver, symbol), 1); \
    } while (0)
    FINDS("cuMemAlloc", 12000, CU_LOOKUP_DEFAULT, "cuMemAlloc_v2");
    FINDS("cuLaunchKernel", 7000, CU_LOOKUP_LEGACY, "cuLaunchKernel");
    FINDS("cuLaunchKernel", 7000, CU_LOOKUP_PER_THREAD, "cuLaunchKernel_ptsz");
    FINDS("cuMemcpyHtoD", 12000, CU_LOOKUP_PER_THREAD, "cuMemcpyHtoD_v2_ptds");
    FINDS("cuMemAlloc", 12000, CU_LOOKUP_PER_THREAD, "cuMemAlloc_v2");
    FINDS("cuStreamBeginCapture", 10000, CU_LOOKUP_DEFAULT, "cuStreamBeginCapture");
    FINDS("cuStreamBeginCapture", 10010, CU_LOOKUP_DEFAULT, "cuStreamBeginCapture_v2");
    FINDS("cuStreamWriteValue32", 11060, CU_LOOKUP_DEFAULT, "cuStreamWriteValue32");
    FINDS("cuStreamWriteValue32", 13000, CU_LOOKUP_PER_THREAD, "cuStreamWriteValue32_v2_ptsz");
    FINDS("cuCtxCreate", 12000, CU_LOOKUP_DEFAULT, "cuCtxCreate_v3");
    FINDS("cuGetProcAddress", 11030, CU_LOOKUP_DEFAULT, "cuGetProcAddress");
    FINDS("cuGetProcAddress", 12000, CU_LOOKUP_DEFAULT, "cuGetProcAddress_v2");
    if (version >= 14000) FINDS("cuLaunchKernel", 14000, CU_LOOKUP_PER_THREAD, "cuLaunchKernel_v3_ptsz");
    IS(get_proc2("cuLaunchKernelBatch", &p, version, 0, &status), CUDA_SUCCESS);
    IS(status, version >= 14000 ? CU_LOOKUP_SUCCESS : CU_LOOKUP_NOT_FOUND);
    IS(get_proc2("cuNothing", &p, 12000, 0, &status), CUDA_SUCCESS);
    IS(status, CU_LOOKUP_NOT_FOUND);
    IS(p == NULL, 1);
    IS(get_proc2("cuNothing", &p, 12000, 0, NULL), CUDA_SUCCESS);
    IS(get_proc("cuNothing", &p, 12000, 0), CUDA_ERROR_NOT_FOUND);
    IS(get_proc2("cuLaunchKernelEx", &p, 11000, 0, &status), CUDA_SUCCESS);
    IS(status, CU_LOOKUP_VERSION);
    IS(p == NULL, 1);
    IS(get_proc2("cuMemAlloc", &p, version + 10, 0, &status), CUDA_ERROR_INVALID_VALUE);
}

static const struct { const char *name; void (*run)(void); } checks[] = {
    {"order", check_order},         {"legacy", check_legacy},       {"threads", check_threads},
    {"events", check_events},       {"values", check_values},       {"no_values", check_no_values},
    {"memory", check_memory},       {"callbacks", check_callbacks}, {"errors", check_errors},
    {"crash", check_crash},         {"bad_address", check_bad_address}, {"destroyed", check_destroyed},
    {"fork", check_fork},           {"graphs", check_graphs},       {"captures", check_captures},
    {"lookup", check_lookup},       {"contexts", check_contexts},   {"devices", check_devices},
      {"streams", check_streams},
    {"kernels", check_kernels},     {"large", check_large},
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (argc < 2) puts(checks[i].name);
        else if (!strcmp(argv[1], checks[i].name)) return checks[i].run(), failures ? 1 : 0;
    }
    return argc < 2 ? 0 : (fprintf(stderr, "checks: no check named %s\n", argv[1]), 2);
}
