/* Small OpenCL programs that say what they found. What they print must be the same under Headway as without.
 *
 *     checks           the names of all
 *     checks NAME...   runs them one after the other; with PAUSE set, waits for a line before it ends */
#include "reach.h"
#include <pthread.h>
#include <sys/wait.h>

enum { WORDS = 256, SIZE = WORDS * 4 };
static cl_command_queue queue;
static cl_kernel function;
static cl_mem memory;

static uint32_t sum_of(const uint32_t *words, size_t count) {
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < count; i++) sum = (sum ^ words[i] ^ words[i] >> 16) * 16777619u;
    return sum;
}

static uint32_t sum(cl_mem from) {
    uint32_t words[WORDS];
    CK(clEnqueueReadBuffer(queue, from, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    return sum_of(words, WORDS);
}

static void fill(cl_mem to, uint32_t value) {
    CK(clEnqueueFillBuffer(queue, to, &value, 4, 0, SIZE, 0, NULL, NULL));
}

static cl_int status_of(cl_event event) {
    cl_int status;
    CK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    return status;
}

static void ended(cl_event event) { CK(clReleaseEvent(event)); }

static void kernels(void) {
    cl_kernel one = kernel("one");
    for (uint32_t i = 0; i < 20; i++) CK(spin(queue, function, memory, 100, i, i % 2 ? WORDS : 64, 0, NULL, NULL));
    CK(clSetKernelArg(one, 0, sizeof memory, &memory));
    CK(clEnqueueTask(queue, one, 0, NULL, NULL));
    CK(clFlush(queue));
    CK(clFinish(queue));
    printf("kernels %u\n", sum(memory));
    CK(clReleaseKernel(one));
}

static void copies(void) {
    cl_mem other = buffer(SIZE);
    uint32_t words[WORDS];
    const size_t origin[3] = {0, 0, 0}, there[3] = {8, 2, 0}, region[3] = {32, 4, 1};
    for (uint32_t i = 0; i < WORDS; i++) words[i] = i * i;
    CK(clEnqueueWriteBuffer(queue, memory, CL_FALSE, 0, SIZE, words, 0, NULL, NULL));
    fill(other, 7);
    CK(clEnqueueCopyBuffer(queue, memory, other, 64, 128, 512, 0, NULL, NULL));
    CK(clEnqueueCopyBufferRect(queue, memory, other, origin, there, region, 64, 0, 64, 0, 0, NULL, NULL));
    CK(clEnqueueReadBufferRect(queue, other, CL_TRUE, there, origin, region, 64, 0, 64, 0, words, 0, NULL, NULL));
    CK(clEnqueueWriteBufferRect(queue, other, CL_TRUE, origin, there, region, 64, 0, 64, 0, words, 0, NULL, NULL));
    CK(clEnqueueMigrateMemObjects(queue, 1, &other, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL));
    printf("copies %u %u\n", sum(other), sum_of(words, WORDS));
    CK(clReleaseMemObject(other));
}

static void images(void) {
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc shape = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 16, .image_height = 16};
    const size_t origin[3] = {0, 0, 0}, region[3] = {16, 16, 1};
    const uint32_t colour[4] = {1, 2, 3, 4};
    uint32_t pixels[WORDS];
    size_t row;
    cl_int error;
    cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE, &format, &shape, NULL, &error);
    CK(error);
    cl_mem twin = clCreateImage(context, CL_MEM_READ_WRITE, &format, &shape, NULL, &error);
    CK(error);
    CK(clEnqueueFillImage(queue, image, colour, origin, region, 0, NULL, NULL));
    CK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, pixels, 0, NULL, NULL));
    printf("images %u", sum_of(pixels, WORDS));
    for (uint32_t i = 0; i < WORDS; i++) pixels[i] = i * 77;
    CK(clEnqueueWriteImage(queue, image, CL_FALSE, origin, region, 0, 0, pixels, 0, NULL, NULL));
    CK(clEnqueueCopyImage(queue, image, twin, origin, origin, region, 0, NULL, NULL));
    CK(clEnqueueCopyImageToBuffer(queue, twin, memory, origin, region, 0, 0, NULL, NULL));
    CK(clEnqueueCopyBufferToImage(queue, memory, image, 0, origin, region, 0, NULL, NULL));
    uint32_t *mapped = clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, origin, region, &row, NULL, 0, NULL, NULL, &error);
    CK(error);
    printf(" %u %u\n", sum_of(mapped, 16), sum(memory));
    CK(clEnqueueUnmapMemObject(queue, image, mapped, 0, NULL, NULL));
    CK(clFinish(queue));
    CK(clReleaseMemObject(image));
    CK(clReleaseMemObject(twin));
}

static void maps(void) {
    cl_int error;
    cl_event event;
    fill(memory, 5);
    uint32_t *words = clEnqueueMapBuffer(queue, memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, SIZE, 0, NULL, NULL, &error);
    CK(error);
    for (uint32_t i = 0; i < WORDS; i++) words[i] += i;
    CK(clEnqueueUnmapMemObject(queue, memory, words, 0, NULL, NULL));
    CK(spin(queue, function, memory, 1000, 3, WORDS, 0, NULL, NULL));
    words = clEnqueueMapBuffer(queue, memory, CL_FALSE, CL_MAP_READ, 0, SIZE, 0, NULL, &event, NULL);
    CK(words ? CL_SUCCESS : CL_MAP_FAILURE);
    CK(clWaitForEvents(1, &event));
    printf("maps %u\n", sum_of(words, WORDS));
    CK(clEnqueueUnmapMemObject(queue, memory, words, 0, NULL, NULL));
    CK(clFinish(queue));
    ended(event);
}

static void shared(void) {
    uint32_t *a = clSVMAlloc(context, CL_MEM_READ_WRITE, SIZE, 0), *b = clSVMAlloc(context, CL_MEM_READ_WRITE, SIZE, 0);
    uint32_t nine = 9;
    CK(a && b ? CL_SUCCESS : CL_OUT_OF_RESOURCES);
    CK(clEnqueueSVMMemFill(queue, a, &nine, 4, SIZE, 0, NULL, NULL));
    CK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE, a, SIZE, 0, NULL, NULL));
    a[17] = 3;
    CK(clEnqueueSVMUnmap(queue, a, 0, NULL, NULL));
    CK(clEnqueueSVMMemcpy(queue, CL_TRUE, b, a, SIZE, 0, NULL, NULL));
    printf("shared %u\n", sum_of(b, WORDS));
    clSVMFree(context, a);
    clSVMFree(context, b);
}

static void events(void) {
    cl_event event[3], barrier;
    cl_int errors[4];
    fill(memory, 1);
    for (uint32_t i = 0; i < 3; i++) CK(spin(queue, function, memory, 2000, i, WORDS, i, i ? event : NULL, &event[i]));
    CK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &barrier));
    CK(clFlush(queue));
    while (status_of(event[0]) != CL_COMPLETE) usleep(100);
    CK(clWaitForEvents(3, event));
    CK(clWaitForEvents(1, &barrier));
    errors[0] = status_of(event[2]);
    errors[1] = clWaitForEvents(0, NULL);
    errors[2] = clWaitForEvents(1, NULL);
    errors[3] = clGetEventInfo(event[0], CL_EVENT_COMMAND_EXECUTION_STATUS, 1, &errors[0], NULL);
    printf("events %u: %d %d %d %d\n", sum(memory), errors[0], errors[1], errors[2], errors[3]);
    for (int i = 0; i < 3; i++) ended(event[i]);
    ended(barrier);
}

/* Whatever runs first, the chain of events says what the result is. */
static void out_of_order(void) {
    cl_command_queue loose = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_mem part[4];
    cl_event chain[4] = {NULL}, next, all;
    for (int i = 0; i < 4; i++) fill(part[i] = buffer(SIZE), (uint32_t)i);
    CK(clFinish(queue));
    for (uint32_t n = 0; n < 40; n++) {
        int i = (int)(n * 7 % 4);
        CK(spin(loose, function, part[i], 500, n, WORDS, chain[i] ? 1 : 0, chain[i] ? &chain[i] : NULL, &next));
        if (chain[i]) ended(chain[i]);
        chain[i] = next;
    }
    CK(clEnqueueBarrierWithWaitList(loose, 0, NULL, &all));
    uint32_t word;
    CK(clEnqueueReadBuffer(loose, part[0], CL_TRUE, 0, 4, &word, 1, &chain[0], NULL));
    CK(clWaitForEvents(1, &all));
    printf("out_of_order");
    for (int i = 0; i < 4; i++) {
        printf(" %u", sum(part[i]));
        ended(chain[i]);
        CK(clReleaseMemObject(part[i]));
    }
    printf(" %u\n", word);
    ended(all);
    CK(clReleaseCommandQueue(loose));
}

/* Work that cannot start until the program says so: it must be able to say so. */
static void user_events(void) {
    cl_int error;
    fill(memory, 1);
    CK(clFinish(queue));
    for (int round = 0; round < 3; round++) {
        cl_event go = clCreateUserEvent(context, &error), first;
        CK(error);
        CK(spin(queue, function, memory, 100, 0, WORDS, 1, &go, &first));
        for (uint32_t i = 1; i < 100; i++) CK(spin(queue, function, memory, 100, i, WORDS, 0, NULL, NULL));
        CK(clFlush(queue));
        int held = status_of(first) > CL_COMPLETE;
        CK(clSetUserEventStatus(go, CL_COMPLETE));
        CK(clFinish(queue));
        printf("user_events %d %u %d\n", held, sum(memory), clSetUserEventStatus(go, CL_COMPLETE));
        ended(go);
        ended(first);
    }
}

static int called;
static void CL_CALLBACK again(cl_event event, cl_int status, void *data) {
    (void)event, (void)data;
    for (uint32_t i = 0; i < 5 && status == CL_COMPLETE; i++) CK(spin(queue, function, memory, 100, i, WORDS, 0, NULL, NULL));
    CK(clFlush(queue));
    __atomic_add_fetch(&called, 1, __ATOMIC_RELEASE);
}

/* A driver's own thread adds work while the program may be at its gate. */
static void callbacks(void) {
    cl_event event;
    fill(memory, 1);
    CK(clFinish(queue));
    CK(spin(queue, function, memory, 1000, 9, WORDS, 0, NULL, &event));
    CK(clSetEventCallback(event, CL_COMPLETE, again, NULL));
    CK(clFlush(queue));
    while (!__atomic_load_n(&called, __ATOMIC_ACQUIRE)) usleep(100);
    CK(clFinish(queue));
    printf("callbacks %u\n", sum(memory));
    ended(event);
}

/* Queues come and go, some with work on them, some used again. */
static void queues(void) {
    uint32_t total = 0;
    for (int round = 0; round < 100; round++) {
        cl_command_queue made = make_queue(round % 3 ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        cl_mem own = buffer(SIZE);
        cl_event event[2];
        uint32_t one = 1;
        CK(clEnqueueFillBuffer(made, own, &one, 4, 0, SIZE, 0, NULL, &event[0]));
        CK(clRetainCommandQueue(made));
        CK(spin(made, function, own, 100, 1, WORDS, 1, &event[0], &event[1]));
        CK(clReleaseCommandQueue(made));
        CK(spin(made, function, own, 100, 2, WORDS, 1, &event[1], NULL));
        if (round % 2) CK(clFinish(made));
        CK(clReleaseCommandQueue(made));
        ended(event[0]);
        ended(event[1]);
        if (round % 2) total += sum(own);
        CK(clReleaseMemObject(own));
    }
    printf("queues %u\n", total);
}

static void *work_alone(void *number) {
    cl_command_queue own = make_queue(0);
    cl_kernel k = kernel("spin");
    cl_mem mine = buffer(SIZE);
    uint32_t words[WORDS], start = (uint32_t)(uintptr_t)number;
    CK(clEnqueueFillBuffer(own, mine, &start, 4, 0, SIZE, 0, NULL, NULL));
    for (uint32_t i = 0; i < 50; i++) CK(spin(own, k, mine, 200, i, WORDS, 0, NULL, NULL));
    CK(clEnqueueReadBuffer(own, mine, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    CK(clReleaseCommandQueue(own));
    return (void *)(uintptr_t)sum_of(words, WORDS);
}

static void threads(void) {
    pthread_t made[4];
    void *result;
    for (size_t i = 0; i < 4; i++) pthread_create(&made[i], NULL, work_alone, (void *)i);
    for (size_t i = 0; i < 4; i++) pthread_join(made[i], &result), printf("threads %u\n", (uint32_t)(uintptr_t)result);
}

static void errors(void) {
    size_t zero[3] = {0, 0, 0}, words = WORDS, odd = 7;
    uint32_t word;
    cl_int error = 0;
    cl_kernel bare = kernel("spin");
#define TELL(call) printf("errors %s: %d\n", #call, (call))
    TELL(clEnqueueNDRangeKernel(NULL, function, 1, NULL, &words, NULL, 0, NULL, NULL));
    TELL(clEnqueueNDRangeKernel(queue, function, 9, NULL, &words, NULL, 0, NULL, NULL));
    TELL(clEnqueueNDRangeKernel(queue, function, 0, NULL, NULL, NULL, 0, NULL, NULL));
    TELL(clEnqueueNDRangeKernel(queue, function, 1, NULL, &words, &odd, 0, NULL, NULL));
    TELL(clEnqueueNDRangeKernel(queue, bare, 1, NULL, &words, NULL, 0, NULL, NULL));
    TELL(clEnqueueNDRangeKernel(queue, function, 1, NULL, &words, NULL, 1, NULL, NULL));
    TELL(clEnqueueReadBuffer(queue, NULL, CL_TRUE, 0, 4, &word, 0, NULL, NULL));
    TELL(clEnqueueReadBuffer(queue, memory, CL_TRUE, SIZE, 4, &word, 0, NULL, NULL));
    TELL(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, 4, NULL, 0, NULL, NULL));
    TELL(clEnqueueWriteBuffer(NULL, memory, CL_TRUE, 0, 4, &word, 0, NULL, NULL));
    TELL(clEnqueueCopyBuffer(queue, memory, memory, 0, 0, 64, 0, NULL, NULL));
    TELL(clEnqueueCopyBufferRect(queue, memory, memory, zero, zero, NULL, 0, 0, 0, 0, 0, NULL, NULL));
    TELL(clEnqueueFillBuffer(queue, memory, NULL, 4, 0, 4, 0, NULL, NULL));
    TELL(clEnqueueFillBuffer(queue, memory, &word, 3, 0, 3, 0, NULL, NULL));
    TELL(clEnqueueMapBuffer(queue, memory, CL_TRUE, CL_MAP_READ, SIZE, 4, 0, NULL, NULL, &error) != NULL);
    TELL(error);
    TELL(clEnqueueMapBuffer(NULL, memory, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &error) != NULL);
    TELL(error);
    TELL(clEnqueueUnmapMemObject(queue, memory, &word, 0, NULL, NULL));
    TELL(clFinish(NULL));
    TELL(clReleaseCommandQueue(NULL));
    TELL(clRetainCommandQueue(NULL));
    TELL(clEnqueueMarkerWithWaitList(NULL, 0, NULL, NULL));
    printf("errors %u\n", sum(memory));
    CK(clReleaseKernel(bare));
}

/* How many kernels of a few milliseconds are in flight at once. */
static void window(void) {
    enum { MANY = 40 };
    cl_event event[MANY];
    int most = 0;
    for (int i = 0; i < MANY; i++) {
        int flight = 0;
        CK(spin(queue, function, memory, 10000, 1, WORDS, 0, NULL, &event[i]));
        for (int j = 0; j <= i; j++) flight += status_of(event[j]) > CL_COMPLETE;
        if (flight > most) most = flight;
    }
    CK(clFinish(queue));
    for (int i = 0; i < MANY; i++) ended(event[i]);
    printf("%d\n", most);
}

/* A child that does not use OpenCL, and one that begins with it. */
static void children(void) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (!child) _exit(0);
    waitpid(child, &status, 0);
    printf("children %d %u\n", status, sum(memory));
}

static const struct check {
    const char *name;
    void (*run)(void);
} checks[] = {
#define CHECK(name) {#name, name}
    CHECK(kernels), CHECK(copies), CHECK(images), CHECK(maps), CHECK(shared), CHECK(events), CHECK(out_of_order),
    CHECK(user_events), CHECK(callbacks), CHECK(queues), CHECK(threads), CHECK(errors), CHECK(children), CHECK(window),
};

int main(int argc, char **argv) {
    const size_t count = sizeof checks / sizeof *checks;
    for (size_t i = 0; i < count && argc < 2; i++) puts(checks[i].name);
    if (argc < 2) return 0;
    begin();
    queue = make_queue(0);
    function = kernel("spin");
    memory = buffer(SIZE);
    fill(memory, 1);
    CK(clFinish(queue));
    for (int n = 1; n < argc; n++) {
        size_t i = 0;
        while (i < count && strcmp(checks[i].name, argv[n])) i++;
        if (i == count) return fprintf(stderr, "checks: no check %s\n", argv[n]), 2;
        checks[i].run();
    }
    fflush(stdout);
    if (getenv("PAUSE")) getchar();
    CK(clReleaseCommandQueue(queue));
    return 0;
}
