/* An ordinary OpenCL program, for measuring how a device is shared: it knows of no scheduler.
 *
 *     clapp hp  KERNEL_US KERNELS PERIOD_MS SECONDS   a job every period: kernels, then a wait
 *     clapp lp  KERNEL_US KERNELS 0         SECONDS   the same, as fast as it goes
 *     clapp fix KERNEL_US KERNELS PERIOD_MS JOBS      so many jobs: the checksum is always the same
 *
 * Prints one JSON line. QUEUE is in (order, the default) or out; WAIT is finish (the default), event, poll, read
 * or map: how a job is waited for; LOOPS is how many loops of a kernel take a microsecond (found out if it is not
 * said); WORDS is how wide kernels are (64; a GPU takes more at once); START_AT is a time in seconds. */
#include "reach.h"

static size_t words = 64;
static cl_command_queue queue;
static cl_mem memory;
static cl_kernel function;
static double loops_per_us;
static const char *way;

static void wait_for(cl_event event) {
    uint32_t word;
    cl_int status = CL_QUEUED, error;
    if (!strcmp(way, "finish")) CK(clFinish(queue));
    else if (!strcmp(way, "event")) CK(clWaitForEvents(1, &event));
    else if (!strcmp(way, "read")) CK(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, 4, &word, 1, &event, NULL));
    else if (!strcmp(way, "map")) {
        void *mapped = clEnqueueMapBuffer(queue, memory, CL_TRUE, CL_MAP_READ, 0, 4, 1, &event, NULL, &error);
        CK(error);
        CK(clEnqueueUnmapMemObject(queue, memory, mapped, 0, NULL, NULL));
        CK(clFinish(queue));
    } else if (!strcmp(way, "poll")) {
        CK(clFlush(queue));
        while (status > CL_COMPLETE) {
            usleep(50);
            CK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
        }
    } else fprintf(stderr, "clapp: WAIT=%s?\n", way), exit(2);
}

/* Each kernel waits for the one before, so a queue without order has the same result. */
static double job(uint32_t us, int kernels) {
    double start = now();
    cl_event before = NULL, event = NULL;
    for (int i = 0; i < kernels; i++, before = event) {
        uint32_t loops = (uint32_t)(us * loops_per_us / (double)words);
        CK(spin(queue, function, memory, loops, (uint32_t)i, words, before ? 1 : 0, before ? &before : NULL, &event));
        if (before) CK(clReleaseEvent(before));
    }
    wait_for(event);
    CK(clReleaseEvent(event));
    return now() - start;
}

/* Again and again: the first guess may be far off. */
static void calibrate(void) {
    loops_per_us = 1000;
    for (int again = 0; again < 5; again++) {
        double best = 1e12;
        for (int i = 0; i < 3; i++) {
            double took = job(2000, 1);
            if (took < best) best = took;
        }
        loops_per_us *= 2000 / best;
    }
    if (2000 * loops_per_us / (double)words > UINT32_MAX)
        fprintf(stderr, "clapp: kernels take no longer, however often they loop\n"), exit(4);
}

static uint32_t checksum(void) {
    uint32_t *found = malloc(words * sizeof *found), sum = 2166136261u;
    CK(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, words * sizeof *found, found, 0, NULL, NULL));
    for (size_t i = 0; i < words; i++) sum = (sum ^ found[i] ^ found[i] >> 16) * 16777619u;
    free(found);
    return sum;
}

static const char *device_name(void) {
    static char name[128] = "?";
    clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    return name;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *start_at = getenv("START_AT"), *order = getenv("QUEUE");
    if (argc != 6) return fprintf(stderr, "clapp hp|lp|fix KERNEL_US KERNELS PERIOD_MS SECONDS|JOBS\n"), 2;
    way = getenv("WAIT") ? getenv("WAIT") : "finish";
    if (getenv("WORDS")) words = (size_t)atol(getenv("WORDS"));
    begin();
    function = kernel("spin");
    queue = make_queue(order && !strcmp(order, "out") ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
    memory = buffer(words * 4);
    uint32_t one = 1;
    if (getenv("LOOPS")) loops_per_us = atof(getenv("LOOPS"));
    else calibrate();
    CK(clEnqueueFillBuffer(queue, memory, &one, 4, 0, words * 4, 0, NULL, NULL));
    CK(clFinish(queue));
    uint32_t us = (uint32_t)atoi(argv[2]);
    int kernels = atoi(argv[3]);
    double period = atof(argv[4]) * 1e3, amount = atof(argv[5]);
    size_t room = 1024, jobs = 0, fixed = strcmp(mode, "fix") ? 0 : (size_t)amount;
    double *times = malloc(room * sizeof *times);
    for (int i = 0; i < 3; i++) job(us, kernels);
    while (start_at && now_us(CLOCK_REALTIME) < atof(start_at) * 1e6) usleep(200);
    double start = now(), next = start + period;
    while (fixed ? jobs < fixed : now() < start + amount * 1e6) {
        if (period > 0 && now() < next) usleep((useconds_t)(next - now()));
        if (jobs == room) times = realloc(times, (room *= 2) * sizeof *times);
        times[jobs++] = job(us, kernels);
        next = next + period < now() ? now() : next + period;
    }
    double elapsed = now() - start;
    qsort(times, jobs, sizeof *times, by_size);
#define QUANTILE(p) times[(size_t)((p) * (double)(jobs - 1))]
    printf("{\"mode\": \"%s\", \"jobs\": %zu, \"busy\": %.4f, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, "
           "\"max_us\": %.1f, \"loops\": %.1f, \"checksum\": %u, \"device\": \"%s\"}\n",
           mode, jobs, (double)jobs * kernels * us / elapsed, QUANTILE(.5), QUANTILE(.9), QUANTILE(.99),
           times[jobs - 1], loops_per_us, checksum(), device_name());
    CK(clReleaseCommandQueue(queue));
    return 0;
}
