/* An ordinary CUDA program on the driver API, for measuring how a GPU is shared: it knows of no scheduler.
 *
 *     cudaapp hp  KERNEL_US KERNELS PERIOD_MS SECONDS   a job every period: kernels, then a stream sync
 *     cudaapp lp  KERNEL_US KERNELS 0         SECONDS   the same, as fast as it goes
 *     cudaapp fix KERNEL_US KERNELS PERIOD_MS JOBS      so many jobs: the checksum is always the same
 *     cudaapp cal                                       what a 1000 us kernel takes, in us
 *
 * Prints one JSON line. STREAM is null, legacy, thread, blocking or nonblocking (the default); LAUNCH is
 * kernel, ex, cooperative, extra (parameters in a buffer), graph, or future (a launch nobody knows);
 * START_AT is a time in seconds; LINGER: stay until standard input ends; SYNC: wait for the GPU after each so many
 * kernels of a job, too; THINK_US: CPU time before each kernel but the first; RANDOM: jobs come at any time, a period apart
 * in the mean. reach.h says how VIA, PER_THREAD and VERSION reach the driver. */
#include "reach.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 64 };
#define SHAPE 1, 1, 1, 32, 1, 1, 0 /* grid, block, shared memory */
static CUfunction function;
static CUstream stream;
static CUdeviceptr memory;
static CUgraphExec exec;
static CUresult (*future)(const CUfutureLaunch *);
static const char *how;
static int sync_each, think_us;

static double now_us(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double now(void) { return now_us(CLOCK_MONOTONIC); }

static CUstream choose_stream(void) {
    const char *name = getenv("STREAM");
    CUstream made = NULL;
    if (!name || !strcmp(name, "nonblocking")) CK(cu.StreamCreate(&made, CU_STREAM_NON_BLOCKING));
    else if (!strcmp(name, "blocking")) CK(cu.StreamCreate(&made, CU_STREAM_DEFAULT));
    else if (!strcmp(name, "legacy")) return CU_STREAM_LEGACY;
    else if (!strcmp(name, "thread")) return CU_STREAM_PER_THREAD;
    else if (strcmp(name, "null")) fprintf(stderr, "cudaapp: STREAM=%s?\n", name), exit(2);
    return made;
}

static void launch(uint32_t us, uint32_t number) {
    uint32_t words = WORDS;
    struct { CUdeviceptr out; uint32_t us, n, mix; } buffer = {memory, us, words, number};
    size_t size = sizeof buffer;
    void *params[] = {&memory, &us, &words, &number};
    void *extra[] = {CU_LAUNCH_BUFFER, &buffer, CU_LAUNCH_SIZE, &size, CU_LAUNCH_END};
    CUlaunchConfig config = {SHAPE, stream, NULL, 0};
    CUfutureLaunch unknown = {sizeof unknown, function, stream, params};
    if (!strcmp(how, "kernel")) CK(cu.LaunchKernel(function, SHAPE, stream, params, NULL));
    else if (!strcmp(how, "ex")) CK(cu.LaunchKernelEx(&config, function, params, NULL));
    else if (!strcmp(how, "cooperative")) CK(cu.LaunchCooperativeKernel(function, SHAPE, stream, params));
    else if (!strcmp(how, "extra")) CK(cu.LaunchKernel(function, SHAPE, stream, NULL, extra));
    else if (!strcmp(how, "future")) CK(future(&unknown));
    else fprintf(stderr, "cudaapp: LAUNCH=%s?\n", how), exit(2);
}

static void capture(uint32_t us, int kernels) {
    CUstream side;
    CUgraph graph;
    CK(cu.StreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CK(cu.StreamBeginCapture(side, CU_CAPTURE_GLOBAL));
    for (int i = 0; i < kernels; i++) CK(spin(function, side, memory, us, WORDS, (uint32_t)i));
    CK(cu.StreamEndCapture(side, &graph));
    CK(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    CK(cu.GraphDestroy(graph));
    CK(cu.StreamDestroy(side));
}

static double job(uint32_t us, int kernels) {
    double start = now();
    if (exec) CK(cu.GraphLaunch(exec, stream));
    for (int i = 0; i < kernels && !exec; i++) {
        for (double end = now() + think_us; i && now() < end;) {}
        launch(us, (uint32_t)i);
        if (sync_each && (i + 1) % sync_each == 0) CK(cu.StreamSynchronize(stream));
    }
    CK(cu.StreamSynchronize(stream));
    return now() - start;
}

static uint32_t checksum(void) {
    uint32_t words[WORDS], sum = 2166136261u;
    CK(cu.MemcpyDtoH(words, memory, sizeof words));
    for (int i = 0; i < WORDS; i++) sum = (sum ^ words[i] ^ words[i] >> 16) * 16777619u;
    return sum;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *start_at = getenv("START_AT");
    how = getenv("LAUNCH") ? getenv("LAUNCH") : "kernel";
    sync_each = getenv("SYNC") ? atoi(getenv("SYNC")) : 0;
    think_us = getenv("THINK_US") ? atoi(getenv("THINK_US")) : 0;
    if (strcmp(mode, "cal") && argc != 6)
        return fprintf(stderr, "cudaapp hp|lp|fix KERNEL_US KERNELS PERIOD_MS SECONDS|JOBS, or cudaapp cal\n"), 2;
    begin();
    function = kernel("spin_us");
    stream = choose_stream();
    CK(cu.MemAlloc(&memory, WORDS * 4));
    CK(cu.MemsetD32(memory, 1, WORDS));
    CK(cu.CtxSynchronize());
    if (!strcmp(mode, "cal")) return job(1000, 1), printf("%.2f\n", job(1000, 1)), 0;
    uint32_t us = (uint32_t)atoi(argv[2]);
    int kernels = atoi(argv[3]);
    double period = atof(argv[4]) * 1e3, amount = atof(argv[5]);
    size_t room = 1024, jobs = 0, fixed = strcmp(mode, "fix") ? 0 : (size_t)amount;
    double *times = malloc(room * sizeof *times);
    if (!strcmp(how, "graph")) capture(us, kernels);
    if (!strcmp(how, "future")) future = look_up("cuLaunchKernel", "cuLaunchKernel_v3", "_ptsz", 14000);
    for (int i = 0; i < 3; i++) job(us, kernels);
    while (start_at && now_us(CLOCK_REALTIME) < atof(start_at) * 1e6) usleep(200);
    double start = now(), next = start + period;
    while (fixed ? jobs < fixed : now() < start + amount * 1e6) {
        if (period > 0 && now() < next) usleep((useconds_t)(next - now()));
        if (jobs == room) times = realloc(times, (room *= 2) * sizeof *times);
        times[jobs++] = job(us, kernels);
        double after = getenv("RANDOM") ? -log(1 - drand48()) * period : period;
        next = !getenv("RANDOM") && next + after < now() ? now() : next + after;
    }
    double elapsed = now() - start;
    qsort(times, jobs, sizeof *times, by_size);
#define QUANTILE(p) times[(size_t)((p) * (double)(jobs - 1))]
    printf("{\"mode\": \"%s\", \"jobs\": %zu, \"busy\": %.4f, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, "
           "\"max_us\": %.1f, \"checksum\": %u}\n",
           mode, jobs, (double)jobs * kernels * us / elapsed, QUANTILE(.5), QUANTILE(.9), QUANTILE(.99),
           times[jobs - 1], checksum());
    fflush(stdout);
    while (getenv("LINGER") && getchar() != EOF) {}
    return 0;
}
