/* A CUDA program that launches kernels in ways that matter where it has a share of the multiprocessors: one for each
 * line that it is told. It says what the call returned, and after `sum` how many of its kernels were lost, doubled or
 * out of order (0: none). */
#include "reach.h"
#include <pthread.h>
#include <unistd.h>

static CUstream stream;
static CUdeviceptr word;
static uint32_t launched, us = 20;

static void say(const char *what, long long number) {
    printf("%s %lld\n", what, number);
    fflush(stdout);
}

/* What its kernels make of the word, one after the other. */
static uint32_t expected(void) {
    uint32_t x = 0;
    for (uint32_t i = 0; i < launched; i++) x = (x ^ i) * 1664525u + 1013904223u;
    return x;
}

static void **next_params(void) {
    static uint32_t one = 1, number;
    static void *params[] = {&word, &us, &one, &number};
    number = launched++;
    return params;
}

static CUresult launch(const char *name, unsigned grid) {
    return cu.LaunchKernel(kernel(name), grid, 1, 1, 32, 1, 1, 0, stream, next_params(), NULL);
}

static CUresult launch_ex(int id) {
    CUlaunchAttribute attribute = {.id = id};
    CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, stream, &attribute, id >= 0};
    return cu.LaunchKernelEx(&config, kernel("spin_us"), next_params(), NULL);
}

static CUresult launch_graph(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUresult error = cu.StreamBeginCapture(stream, CU_CAPTURE_GLOBAL);
    if (!error) error = launch("spin_us", 1);
    if (!error) error = cu.StreamEndCapture(stream, &graph);
    if (!error) error = cu.GraphInstantiateWithFlags(&exec, graph, 0);
    if (!error) error = cu.GraphLaunch(exec, stream);
    return error;
}

/* A kernel of a library belongs to no context. */
static CUresult launch_library(void) {
    CUlibrary library;
    CUkernel found;
    CUresult error = cu.LibraryLoadData(&library, image(), NULL, NULL, 0, NULL, NULL, 0);
    if (!error) error = cu.LibraryGetKernel(&found, library, "spin_us");
    if (!error) error = cu.LaunchKernel(found, 1, 1, 1, 32, 1, 1, 0, stream, next_params(), NULL);
    return error;
}

/* Its stream is in a green context of its own, of so many multiprocessors; 0: of all. */
static CUresult make_green(unsigned sms) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*resource)(CUdevice, CUdevResource *, int) = dlsym(driver, "cuDeviceGetDevResource");
    CUresult (*describe)(CUdevResourceDesc *, CUdevResource *, unsigned) = dlsym(driver, "cuDevResourceGenerateDesc");
    CUresult (*make)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned) = dlsym(driver, "cuGreenCtxCreate");
    CUresult (*make_stream)(CUstream *, CUgreenCtx, unsigned, int) = dlsym(driver, "cuGreenCtxStreamCreate");
    CUresult (*split)(CUdevResource *, unsigned *, const CUdevResource *, CUdevResource *, unsigned, unsigned) =
        dlsym(driver, "cuDevSmResourceSplitByCount");
    CUdevResource all, part;
    CUdevResourceDesc described;
    CUgreenCtx green;
    unsigned one = 1;
    CUresult error = resource(0, &all, 1);
    if (!error && sms) error = split(&part, &one, &all, NULL, 0, sms);
    if (!error) error = describe(&described, sms ? &part : &all, 1);
    if (!error) error = make(&green, described, 0, 1);
    if (!error) error = make_stream(&stream, green, CU_STREAM_NON_BLOCKING, 0);
    return error;
}

/* What it may use, as `headway.share()` asks. */
static long long told(void) {
    uint32_t (*share)(void) = (uint32_t(*)(void))dlsym(RTLD_DEFAULT, "headway_share");
    return share ? (long long)share() : -1;
}

/* Work in a context of the program's own, which nobody else's streams can do. */
static CUresult other_context(void) {
    CUcontext own;
    CUstream there;
    CUmodule loaded;
    CUfunction f;
    CUdeviceptr memory;
    uint32_t one = 1, zero = 0;
    void *params[] = {&memory, &us, &one, &zero};
    CUresult error = cu.CtxCreate(&own, NULL, 0, 0, 0);
    if (!error) error = cu.MemAlloc(&memory, 4);
    if (!error) error = cu.ModuleLoadData(&loaded, image());
    if (!error) error = cu.ModuleGetFunction(&f, loaded, "spin_us");
    if (!error) error = cu.StreamCreate(&there, CU_STREAM_NON_BLOCKING);
    if (!error) error = cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, there, params, NULL);
    if (!error) error = cu.StreamSynchronize(there);
    if (!error) error = cu.CtxDestroy(own);
    cu.CtxSetCurrent(context);
    return error;
}

/* Its priority, flags and numbers are those of the program's stream, whatever its work runs on. */
static CUresult stream_is_its_own(void) {
    unsigned flags;
    int priority;
    CUcontext where;
    CK(cu.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -3));
    CUresult error = launch("spin_us", 1);
    CK(cu.StreamGetFlags(stream, &flags));
    CK(cu.StreamGetPriority(stream, &priority));
    CK(cu.StreamGetCtx(stream, &where));
    return error ? error : flags != CU_STREAM_NON_BLOCKING || priority != -3 || where != context;
}

/* The stream waits for what never comes. */
static CUresult hold(void) {
    uint32_t *gate;
    CK(cu.MemHostAlloc((void **)&gate, 4096, 0));
    *gate = 0;
    return cu.StreamWaitValue32(stream, (uintptr_t)gate, 1, CU_WAIT_EQ);
}

/* Launches as fast as it can, in three streams that wait for each other, until it is told something. */
static void *flood(void *over) {
    CUstream streams[3];
    CUevent event;
    CK(cu.CtxSetCurrent(context));
    CK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 3; i++) CK(cu.StreamCreate(&streams[i], i ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    CUfunction f = kernel("spin_us");
    for (int side = 0; !__atomic_load_n((int *)over, __ATOMIC_ACQUIRE); side = (side + 1) % 3) {
        for (unsigned i = 0; i < 1 + launched % 5; i++)
            CK(cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, streams[side], next_params(), NULL));
        CK(cu.EventRecord(event, streams[side]));
        CK(cu.StreamWaitEvent(streams[(side + 1) % 3], event, 0));
        if (launched % 64 < 5) CK(cu.StreamSynchronize(streams[side]));
    }
    for (int i = 0; i < 3; i++) CK(cu.StreamSynchronize(streams[i]));
    for (int i = 0; i < 3; i++) CK(cu.StreamDestroy(streams[i]));
    return NULL;
}

static void flood_until_told(void) {
    pthread_t thread;
    char line[64];
    int over = 0;
    pthread_create(&thread, NULL, flood, &over);
    if (!fgets(line, sizeof line, stdin)) exit(1);
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    say("launched", launched);
}

int main(void) {
    char what[32];
    int number = 0, sms;
    begin();
    CK(cu.MemAlloc(&word, 4));
    CK(cu.MemsetD32(word, 0, 1));
    CK(cu.CtxSynchronize());
    CK(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    say("ready", getpid());
    for (char line[128]; fgets(line, sizeof line, stdin);) {
        if (sscanf(line, "%31s %d", what, &number) < 1) continue;
#define IF(name) else if (!strcmp(what, name))
        if (!strcmp(what, "exit")) return 0;
        IF("us") say("us", us = (uint32_t)number);
        IF("grid") say("grid", launch("spin_us", (unsigned)number));
        IF("clusters") say("clusters", launch("spin_clusters", 2));
        IF("named") say("named", launch("ncclDevKernel_spin", 1));
        IF("cooperative") say("cooperative", cu.LaunchCooperativeKernel(kernel("spin_us"), 1, 1, 1, 32, 1, 1, 0, stream, next_params()));
        IF("attribute") say("attribute", launch_ex(number));
        IF("graph") say("graph", launch_graph());
        IF("library") say("library", launch_library());
        IF("green") say("green", make_green((unsigned)number));
        IF("told") say("told", told());
        IF("context") say("context", other_context());
        IF("ask") say("ask", cu.DeviceGetAttribute(&sms, 16, 0));
        IF("own") say("own", stream_is_its_own());
        IF("sync") say("sync", cu.CtxSynchronize());
        IF("again") say("again", cu.StreamDestroy(stream) + cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        IF("hold") say("hold", hold());
        IF("release") say("release", cu.DevicePrimaryCtxRelease(0));
        IF("retain") {
            CK(cu.DevicePrimaryCtxRetain(&context, 0));
            CK(cu.CtxSetCurrent(context));
            CK(cu.ModuleLoadData(&module, image()));
            CK(cu.MemAlloc(&word, 4));
            CK(cu.MemsetD32(word, 0, 1));
            CK(cu.CtxSynchronize());
            launched = 0;
            say("retain", cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        }
        IF("flood") flood_until_told();
        IF("sum") {
            uint32_t found;
            CK(cu.CtxSynchronize());
            CK(cu.MemcpyDtoH(&found, word, 4));
            say("sum", found != expected());
        }
        else say("what?", 0);
    }
    return 0;
}
