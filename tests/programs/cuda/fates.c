/* A CUDA program that does one thing for each line it is told, and says when it has done it.
 *
 *     fates        reads lines from standard input; reach.h says how it reaches the driver */
#include "reach.h"
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 64, STREAMS = 100, THREADS = 8, ROUNDS = 40 };
static CUfunction spin_us;
static CUdeviceptr memory;
static CUstream stream;

static void say(const char *what, long long number) {
    printf("%s %lld\n", what, number);
    fflush(stdout);
}

static CUstream make_stream(void) {
    CUstream made;
    CK(cu.StreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

static CUresult work(CUstream s, uint32_t us) { return spin(spin_us, s, memory, us, WORDS, 1); }

/* ---- many streams and threads ------------------------------------------------------------------- */

/* What `count` kernels numbered from 0 make of the first word. */
static uint32_t mixed(uint32_t count) {
    uint32_t x = 0;
    for (uint32_t i = 0; i < count; i++) x = (x ^ i) * 1664525u + 1013904223u;
    return x;
}

static int wrong(CUdeviceptr at, uint32_t count) {
    uint32_t word;
    CK(cu.MemcpyDtoH(&word, at, sizeof word));
    return word != mixed(count);
}

/* More streams than lanes, each with work of its own that depends on its order. */
static void many_streams(void) {
    static CUstream streams[STREAMS];
    CUdeviceptr words;
    int bad = 0;
    CK(cu.MemAlloc(&words, STREAMS * 4));
    CK(cu.MemsetD32(words, 0, STREAMS));
    CK(cu.CtxSynchronize());
    for (int i = 0; i < STREAMS; i++) streams[i] = make_stream();
    for (uint32_t round = 0; round < 5; round++)
        for (int i = 0; i < STREAMS; i++) CK(spin(spin_us, streams[i], words + 4 * (unsigned)i, 10, 1, round));
    CK(cu.CtxSynchronize());
    for (int i = 0; i < STREAMS; i++) {
        bad += wrong(words + 4 * (unsigned)i, 5);
        CK(cu.StreamDestroy(streams[i]));
    }
    say("streams", bad);
}

static void *one_thread(void *bad) {
    CUdeviceptr words;
    CUstream streams[4];
    CK(cu.CtxSetCurrent(context));
    CK(cu.MemAlloc(&words, 16));
    for (int i = 0; i < 4; i++) streams[i] = make_stream();
    CK(cu.MemsetD32(words, 0, 4));
    CK(cu.StreamSynchronize(NULL));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < 4; i++) CK(spin(spin_us, streams[i], words + 4 * i, 20, 1, round));
        if (round % 8 == 7) CK(cu.StreamSynchronize(streams[round % 4]));
    }
    for (unsigned i = 0; i < 4; i++) {
        CK(cu.StreamSynchronize(streams[i]));
        if (wrong(words + 4 * i, ROUNDS)) __atomic_add_fetch((int *)bad, 1, __ATOMIC_RELAXED);
        CK(cu.StreamDestroy(streams[i]));
    }
    return NULL;
}

static void many_threads(void) {
    pthread_t threads[THREADS];
    int bad = 0;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, one_thread, &bad);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    say("threads", bad);
}

/* ---- a thread at the gate, another one that waits for the GPU ---------------------------------------- */

static void *keeps_waiting(void *over) {
    CK(cu.CtxSetCurrent(context));
    while (!__atomic_load_n((int *)over, __ATOMIC_ACQUIRE)) CK(cu.CtxSynchronize());
    return NULL;
}

static void launch_and_wait(int rounds) {
    pthread_t other;
    int over = 0;
    pthread_create(&other, NULL, keeps_waiting, &over);
    for (int i = 0; i < rounds; i++) CK(work(stream, 100));
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    pthread_join(other, NULL);
    CK(cu.StreamSynchronize(stream));
    say("both", rounds);
}

/* ---- threads that are cancelled ------------------------------------------------------------------------- */

/* Its driver's locks are not made for that, so it can be cancelled at the gate alone, or between its calls. */
static void *launches(void *s) {
    CK(cu.CtxSetCurrent(context));
    while (!work(s, 10)) pthread_testcancel();
    return NULL;
}

static void cancel_threads(int rounds) {
    CUstream streams[4];
    pthread_t threads[4];
    int cancelled = 0;
    for (int i = 0; i < 4; i++) streams[i] = make_stream();
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, launches, streams[i]);
        usleep(1000 * (1 + (unsigned)round * 7 % 10));
        for (int i = 0; i < 4; i++) {
            void *how;
            pthread_cancel(threads[i]);
            pthread_join(threads[i], &how);
            cancelled += how == PTHREAD_CANCELED;
        }
    }
    for (int i = 0; i < 4; i++) CK(cu.StreamDestroy(streams[i]));
    say("cancelled", cancelled);
}

/* ---- work whose result tells its order -------------------------------------------------------------------- */

static CUdeviceptr series_word;
static uint32_t series_length;

static CUdeviceptr make_word(void) {
    CUdeviceptr word;
    CK(cu.MemAlloc(&word, 4));
    CK(cu.MemsetD32(word, 0, 1));
    CK(cu.StreamSynchronize(NULL));
    return word;
}

/* Some more of it; nobody waits. */
/* Long kernels are of another shape than short ones, as in most programs. */
static CUresult lengthen(uint32_t us) {
    uint32_t words = 1, number = series_length++;
    void *params[] = {&series_word, &us, &words, &number};
    return cu.LaunchKernel(spin_us, 1, 1, 1, us < 2000 ? 32 : 64, 1, 1, 0, stream, params, NULL);
}

static void lengthen_series(uint32_t us, int count) {
    CUresult error = 0;
    for (int i = 0; i < count && !error; i++) error = lengthen(us);
    say("series", error);
}

/* The same, slower than the GPU is. */
static void trickle(uint32_t us, int count) {
    for (int i = 0; i < count; i++) {
        CK(lengthen(us));
        nanosleep(&(struct timespec){.tv_nsec = 4000L * us}, NULL);
    }
    say("trickled", count);
}

static void check_series(void) {
    CK(cu.StreamSynchronize(stream));
    say("bad", wrong(series_word, series_length));
}

/* Two streams that wait for each other after every few kernels. */
static void ping_pong(uint32_t us, int count) {
    CUstream streams[] = {make_stream(), make_stream()};
    CUdeviceptr word = make_word();
    CUevent events[2];
    int side = 0;
    for (int i = 0; i < 2; i++) CK(cu.EventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    for (int i = 0, left = 1; i < count; i++) {
        CK(spin(spin_us, streams[side], word, us, 1, (uint32_t)i));
        if (--left) continue;
        CK(cu.EventRecord(events[side], streams[side]));
        CK(cu.StreamWaitEvent(streams[!side], events[side], 0));
        side = !side;
        left = 1 + i % 4;
    }
    for (int i = 0; i < 2; i++) CK(cu.StreamSynchronize(streams[i]));
    int bad = wrong(word, (uint32_t)count);
    for (int i = 0; i < 2; i++) {
        CK(cu.StreamDestroy(streams[i]));
        CK(cu.EventDestroy(events[i]));
    }
    say("bad", bad);
}

/* The legacy default stream, which the others wait for and which waits for them without being told to. */
static void join_legacy(uint32_t us, int count) {
    CUstream streams[2];
    CUdeviceptr word = make_word();
    for (int i = 0; i < 2; i++) CK(cu.StreamCreate(&streams[i], CU_STREAM_DEFAULT));
    for (int i = 0; i < count; i++)
        CK(spin(spin_us, i % 3 ? NULL : streams[i / 3 % 2], word, us, 1, (uint32_t)i));
    CK(cu.StreamSynchronize(NULL));
    int bad = wrong(word, (uint32_t)count);
    for (int i = 0; i < 2; i++) CK(cu.StreamDestroy(streams[i]));
    say("bad", bad);
}

static struct {
    uint32_t us;
    int bad, rounds;
} churning;

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* One stream and its end: waited for, asked for, waited for with all others, or destroyed in the middle of its work. */
static void churn_once(CUdeviceptr word, uint32_t round) {
    CUstream s;
    CUevent done;
    uint32_t count = 1 + round % 7;
    CK(cu.StreamCreate(&s, round % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    CK(cu.EventCreate(&done, CU_EVENT_DISABLE_TIMING));
    CK(cu.MemsetD32(word, 0, 1));
    CK(cu.StreamSynchronize(NULL));
    for (uint32_t i = 0; i < count; i++) CK(spin(spin_us, s, word, churning.us, 1, i));
    CK(cu.EventRecord(done, s));
    if (round % 4 == 1) CK(cu.StreamSynchronize(s));
    if (round % 4 == 2) CK(cu.CtxSynchronize());
    if (round % 4 == 3) while (cu.StreamQuery(s) == CUDA_ERROR_NOT_READY) usleep(100);
    CK(cu.StreamDestroy(s));
    CK(cu.EventSynchronize(done));
    CK(cu.EventDestroy(done));
    if (wrong(word, count)) __atomic_add_fetch(&churning.bad, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&churning.rounds, 1, __ATOMIC_RELAXED);
}

static void *churn_on(void *end) {
    uint32_t round = 0;
    CK(cu.CtxSetCurrent(context));
    CUdeviceptr word = make_word();
    while (now_ms() < *(uint64_t *)end) churn_once(word, round++);
    return NULL;
}

static void churn(uint32_t us, uint32_t ms) {
    pthread_t threads[4];
    uint64_t end = now_ms() + ms;
    churning.us = us;
    churning.bad = churning.rounds = 0;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, churn_on, &end);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    say("rounds", churning.bad ? -churning.bad : churning.rounds);
}

/* ---- captures -------------------------------------------------------------------------------------- */

static CUgraph graph;
static CUgraphExec exec;

static void *end_in_vain(void *unused) {
    CUgraph none;
    CK(cu.CtxSetCurrent(context));
    cu.StreamEndCapture(stream, &none); /* in the wrong thread */
    return unused;
}

static void end_wrongly(void) {
    pthread_t other;
    CUgraph none;
    CUstream s = make_stream();
    cu.StreamEndCapture(s, &none); /* nothing is captured there */
    pthread_create(&other, NULL, end_in_vain, NULL);
    pthread_join(other, NULL);
    say("ended", 0);
}

static void end_capture(void) {
    size_t count = 0;
    CUgraph seen;
    uint64_t id;
    int status;
    CUgraphNode const *nodes;
    CK(cu.StreamGetCaptureInfo(stream, &status, &id, &seen, &nodes, &count));
    CUresult error = cu.StreamEndCapture(stream, &graph);
    if (!error) error = cu.GraphInstantiateWithFlags(&exec, graph, 0);
    say("captured", error ? -(long long)error : status);
}

/* ---- what a program may do to itself --------------------------------------------------------------------- */

static void fork_a_child(void) {
    int status;
    pid_t child = fork();
    if (!child) {
        int odd = work(stream, 10) != CUDA_ERROR_NOT_INITIALIZED || cu.CtxSynchronize() != CUDA_ERROR_NOT_INITIALIZED;
        _exit(odd);
    }
    waitpid(child, &status, 0);
    say("child", status);
}

/* A child that used what it must not, and lives on. */
static void leave_a_child(void) {
    pid_t child = fork();
    if (!child) {
        work(stream, 10);
        close(0), close(1), close(2);
        sleep(20);
        _exit(0);
    }
    say("child", child);
}

static void job(uint64_t deadline_us, uint32_t us) {
    void (*begin_job)(uint64_t) = (void (*)(uint64_t))dlsym(RTLD_DEFAULT, "headway_job_begin");
    void (*end_job)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "headway_job_end");
    if (!begin_job || !end_job) return say("none", 0);
    begin_job(deadline_us * 1000);
    for (int i = 0; i < 3 && us; i++) { /* three waits, one job */
        CK(work(stream, us));
        CK(cu.StreamSynchronize(stream));
    }
    end_job();
    say("job", 1);
}

int main(void) {
    char word[32];
    int a = 0, b = 0;
    begin();
    spin_us = kernel("spin_us");
    CK(cu.MemAlloc(&memory, WORDS * 4));
    CK(cu.MemsetD32(memory, 0, WORDS));
    CK(cu.CtxSynchronize());
    stream = make_stream();
    series_word = make_word();
    say("ready", getpid());
    for (char line[128]; fgets(line, sizeof line, stdin);) {
        if (sscanf(line, "%31s %d %d", word, &a, &b) < 1) continue;
#define IF(name) else if (!strcmp(word, name))
        if (!strcmp(word, "exit")) return 0;
        IF("launch") say("launched", work(stream, (uint32_t)a));
        IF("launches") {
            CUresult error = 0;
            for (int i = 0; i < b && !error; i++) error = work(stream, (uint32_t)a);
            say("launched", error);
        }
        IF("sync") say("synced", cu.StreamSynchronize(stream));
        IF("read") { /* to pageable memory: it is there when the call comes back */
            uint32_t words[WORDS];
            say("read", cu.MemcpyDtoHAsync(words, memory, sizeof words, stream));
        }
        IF("query") say("queried", cu.StreamQuery(stream));
        IF("crash") say("crashed", cu.LaunchKernel(kernel("crash"), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
        IF("wrong") say("wrong", work((CUstream)&word, 10));
        IF("destroy") {
            CUresult error = cu.StreamDestroy(stream);
            stream = make_stream();
            say("destroyed", error);
        }
        IF("destroy_none") say("destroyed", cu.StreamDestroy(NULL));
        IF("release") say("released", cu.DevicePrimaryCtxRelease(0));
        IF("streams") many_streams();
        IF("threads") many_threads();
        IF("trickle") trickle((uint32_t)a, b);
        IF("series") lengthen_series((uint32_t)a, b);
        IF("right") check_series();
        IF("pingpong") ping_pong((uint32_t)a, b);
        IF("legacy") join_legacy((uint32_t)a, b);
        IF("churn") churn((uint32_t)a, (uint32_t)b);
        IF("cancel") cancel_threads(a);
        IF("both") launch_and_wait(a);
        IF("capture") say("capturing", cu.StreamBeginCapture(stream, a));
        IF("end") end_capture();
        IF("end_wrongly") end_wrongly();
        IF("beside") {
            static CUstream side;
            if (!side) side = make_stream();
            say("beside", work(side, (uint32_t)a));
        }
        IF("graph") say("graph", cu.GraphLaunch(exec, stream));
        IF("fork") fork_a_child();
        IF("leave") leave_a_child();
        IF("close") {
            for (int fd = 100; fd < 1024; fd++) close(fd); /* not what the driver needs */
            say("closed", 0);
        }
        IF("exec") execv("/proc/self/exe", (char *[]){"fates", NULL});
        IF("job") job((uint64_t)a, (uint32_t)b);
        else say("what?", 0);
    }
    return 0;
}
