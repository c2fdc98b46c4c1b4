// What a gate costs that the GPU waits at: stream memory operations on a page of the host's memory.
//   gates ROUNDS OPENINGS    kernels with and without operations between them, in turns; calls; gates that are opened
//   gates wait SECONDS       says so, and has the GPU wait at a gate that nobody opens
// Prints one JSON line with the samples of all, in us; gates.py says what they are. ITERS_PER_US comes from `app cal`.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <time.h>
#include <unistd.h>
#include <vector>
#define CK(x) do { int e_ = (x); if (e_) { fprintf(stderr, "%s: error %d\n", #x, e_); exit(3); } } while (0)

enum { KERNELS = 200, KERNEL_US = 20, AHEAD_US = 4000, CALLS = 100, PAGE = 4096 };
enum { CLOSED = 0, OPEN = 16, OPENED = 32 }; // words of the page, on lines of their own
typedef std::vector<CUstreamBatchMemOpParams> Ops;
typedef std::vector<double> Samples;
struct Part { const char *name; Ops ops = {}; int every = 0; Samples us = {}; };

static decltype(&cuStreamBatchMemOp) batch; // looked up: there is not always a libcuda.so to link with
static uint32_t *page;
static CUdeviceptr page_there;
static cudaStream_t stream;
static cudaEvent_t begun, ended;
static unsigned *out;
static double iters_per_us;

static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec * 1e-3; }
__global__ void lcg(unsigned *out, int iters) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, v = x;
    for (int i = 0; i < iters; i++) v = v * 1664525u + 1013904223u;
    out[x] = v;
}

static void launch(int blocks, double us) { lcg<<<blocks, 512, 0, stream>>>(out, (int)(us * iters_per_us)); }
static void send(Ops &ops) { CK(batch(stream, (unsigned)ops.size(), ops.data(), 0)); }

static CUstreamBatchMemOpParams write_op(int word, uint32_t value) {
    CUstreamBatchMemOpParams op;
    memset(&op, 0, sizeof op);
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = page_there + word * sizeof *page;
    op.writeValue.value = value;
    return op;
}

static CUstreamBatchMemOpParams wait_op(int word, uint32_t value) {
    CUstreamBatchMemOpParams op;
    memset(&op, 0, sizeof op);
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = page_there + word * sizeof *page;
    op.waitValue.value = value;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    return op;
}

static void begin() {
    void *library, *address;
    CK(cudaFree(0));
#define TEXT(name) #name
#define SYMBOL(name) TEXT(name) // with its version: the header's name is a macro
    library = dlopen("libcuda.so.1", RTLD_NOW);
    batch = library ? (decltype(batch))dlsym(library, SYMBOL(cuStreamBatchMemOp)) : nullptr;
    if (!batch) fprintf(stderr, "libcuda.so.1 has no %s\n", SYMBOL(cuStreamBatchMemOp)), exit(3);
    page = (uint32_t *)aligned_alloc(PAGE, PAGE);
    memset(page, 0, PAGE);
    CK(cudaHostRegister(page, PAGE, cudaHostRegisterPortable | cudaHostRegisterMapped));
    CK(cudaHostGetDevicePointer(&address, page, 0));
    page_there = (CUdeviceptr)address;
    CK(cudaMalloc(&out, 264 * 512 * sizeof *out));
    CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CK(cudaEventCreate(&begun));
    CK(cudaEventCreate(&ended));
}

// Kernels on the GPU, with operations after every so many. The CPU is ahead all the time: a long kernel goes first.
static double run_us(Part &part) {
    float ms;
    launch(264, AHEAD_US);
    CK(cudaEventRecord(begun, stream));
    for (int i = 1; i <= KERNELS; i++) {
        launch(264, KERNEL_US);
        if (part.every && i % part.every == 0) send(part.ops);
    }
    CK(cudaEventRecord(ended, stream));
    CK(cudaEventSynchronize(ended));
    CK(cudaEventElapsedTime(&ms, begun, ended));
    return ms * 1e3;
}

// CPU time of one call, from many that fit into the driver's queue.
static double call_us(Part &part) {
    double since = now();
    for (int i = 0; i < CALLS; i++) part.ops.empty() ? launch(1, 0) : send(part.ops);
    double elapsed = now() - since;
    CK(cudaStreamSynchronize(stream));
    return elapsed / CALLS;
}

// In another order in every round, so that none always follows the same one.
static void in_turns(std::vector<Part> &parts, int rounds, double (*measure)(Part &)) {
    for (int round = -1; round < rounds; round++)
        for (size_t i = 0; i < parts.size(); i++) {
            Part &part = parts[(i * (round % 2 ? 1 : parts.size() - 1) + round + 1) % parts.size()];
            double us = measure(part);
            if (round >= 0) part.us.push_back(us); // not the first time
        }
}

static void wait_for(uint32_t value) { while (__atomic_load_n(&page[OPENED], __ATOMIC_ACQUIRE) != value) {} }

// From the host's word to what comes behind the gate, which was closed for so long.
static double opening_us(uint32_t value, double closed_us) {
    Ops ops{wait_op(OPEN, value), write_op(OPENED, value)};
    send(ops);
    for (double until = now() + closed_us; now() < until;) {}
    double since = now();
    __atomic_store_n(&page[OPEN], value, __ATOMIC_RELEASE);
    wait_for(value);
    return now() - since;
}

static double writing_us(uint32_t value) {
    Ops ops{write_op(OPENED, value)};
    double since = now();
    send(ops);
    wait_for(value);
    return now() - since;
}

static void print(const char *name, const Samples &us, const char *end) {
    printf("\"%s\": [", name);
    for (size_t i = 0; i < us.size(); i++) printf("%s%.3f", i ? ", " : "", us[i]);
    printf("]%s", end);
}

static void print(const char *name, const std::vector<Part> &parts) {
    printf("\"%s\": {", name);
    for (const Part &part : parts) {
        std::string shown = part.every > 1 ? part.name + (" / " + std::to_string(part.every)) : part.name;
        print(shown.c_str(), part.us, &part == &parts.back() ? "}, " : ", ");
    }
}

static int wait_at_gate(int seconds) {
    Ops ops{wait_op(OPEN, 1)};
    launch(1, 0);
    CK(cudaDeviceSynchronize()); // a kernel's first launch loads it, and may wait for all that is on the GPU
    send(ops);
    launch(1, 0);
    CK(cudaGetLastError());
    puts("waits");
    fflush(stdout);
    sleep(seconds);
    page[OPEN] = 1;
    CK(cudaDeviceSynchronize());
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "gates ROUNDS OPENINGS, or gates wait SECONDS\n"), 2;
    int rounds = atoi(argv[1]), openings = atoi(argv[2]);
    iters_per_us = atof(getenv("ITERS_PER_US"));
    begin();
    if (!strcmp(argv[1], "wait")) return wait_at_gate(openings);
    page[OPEN] = 1;
    std::vector<Part> gates{{"write", {write_op(CLOSED, 1)}}, {"wait", {wait_op(OPEN, 1)}}};
    gates.push_back({"write, wait", {write_op(CLOSED, 1), wait_op(OPEN, 1)}});
    gates.push_back({"write, wait, write", {write_op(CLOSED, 1), wait_op(OPEN, 1), write_op(OPENED, 1)}});
    std::vector<Part> runs{{"nothing"}}, calls{{"kernel"}, gates.front(), gates.back()};
    for (int every : {1, 10})
        for (Part part : gates) part.every = every, runs.push_back(part);
    in_turns(runs, rounds, run_us);
    in_turns(calls, rounds, call_us);
    Samples soon, late, plain;
    uint32_t value = 1;
    for (int i = 0; i < openings; i++) {
        soon.push_back(opening_us(++value, 100));
        plain.push_back(writing_us(++value));
        if (i % 10 == 0) late.push_back(opening_us(++value, 5000));
    }
    CK(cudaDeviceSynchronize());
    CK(cudaGetLastError()); // of a launch
    printf("{\"kernels\": %d, ", KERNELS);
    print("runs", runs);
    print("calls", calls);
    print("closed 0.1 ms", soon, ", ");
    print("closed 5 ms", late, ", ");
    print("no gate", plain, "}\n");
    return 0;
}
