// A greedy CUDA program that checks every result, and says when it had each: it knows of no scheduler.
//   checked KERNEL_US KERNELS SECONDS [leave]    jobs of KERNELS kernels in a chain, then a copy back and a comparison
// Prints one JSON line: jobs, how many were wrong, when each was done, and when it was about to end, in us of
// CLOCK_MONOTONIC. `leave`: it ends while work of LEFT jobs is on its way to the GPU.
// ITERS_PER_US comes from `app cal`; START_AT is a time in seconds.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>
#include <vector>
#define CK(x) do { cudaError_t e_ = (x); if (e_) { fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e_)); exit(3); } } while (0)

enum { LEFT = 20 };
static double now_us(clockid_t clock) { timespec t; clock_gettime(clock, &t); return t.tv_sec * 1e6 + t.tv_nsec * 1e-3; }
__host__ __device__ unsigned step(unsigned v) { return v * 1664525u + 1013904223u; }
__global__ void chain(unsigned *out, int iters) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, v = out[x];
    for (int i = 0; i < iters; i++) v = step(v);
    out[x] = v;
}

// What `n` steps do to a value: v -> a v + c. Steps compose, so this takes log n of them.
static void power(unsigned long n, unsigned *a, unsigned *c) {
    unsigned pa = 1664525u, pc = 1013904223u;
    for (*a = 1, *c = 0; n; n >>= 1) {
        if (n & 1) *a *= pa, *c = *c * pa + pc;
        pc = pc * pa + pc, pa *= pa;
    }
}

int main(int argc, char **argv) {
    bool leaves = argc == 5 && !strcmp(argv[4], "leave");
    if (argc != 4 && !leaves) return fprintf(stderr, "checked KERNEL_US KERNELS SECONDS [leave]\n"), 2;
    const int blocks = 264, threads = 512, size = blocks * threads;
    int iters = (int)(atof(argv[1]) * atof(getenv("ITERS_PER_US"))), kernels = atoi(argv[2]);
    const char *at = getenv("START_AT");
    unsigned a, c, *v, seed = 1;
    cudaStream_t s;
    std::vector<unsigned> host(size);
    std::vector<double> done;
    long wrong = 0;
    power((unsigned long)iters * kernels, &a, &c);
    CK(cudaMalloc(&v, size * sizeof *v));
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    chain<<<blocks, threads, 0, s>>>(v, iters);
    CK(cudaStreamSynchronize(s));
    while (at && now_us(CLOCK_REALTIME) < atof(at) * 1e6) usleep(200);
    for (double end = now_us(CLOCK_MONOTONIC) + atof(argv[3]) * 1e6; now_us(CLOCK_MONOTONIC) < end; seed++) {
        for (int i = 0; i < size; i++) host[i] = seed + i;
        CK(cudaMemcpyAsync(v, host.data(), size * sizeof *v, cudaMemcpyHostToDevice, s));
        for (int i = 0; i < kernels; i++) chain<<<blocks, threads, 0, s>>>(v, iters);
        CK(cudaMemcpyAsync(host.data(), v, size * sizeof *v, cudaMemcpyDeviceToHost, s));
        CK(cudaStreamSynchronize(s));
        done.push_back(now_us(CLOCK_MONOTONIC));
        bool good = true;
        for (int i = 0; i < size; i++) good &= host[i] == (seed + i) * a + c;
        wrong += !good;
    }
    printf("{\"jobs\": %zu, \"wrong\": %ld, \"done_us\": [", done.size(), wrong);
    for (size_t i = 0; i < done.size(); i++) printf("%s%.0f", i ? ", " : "", done[i]);
    for (int i = 0; leaves && i < LEFT * kernels; i++) chain<<<blocks, threads, 0, s>>>(v, iters);
    printf("], \"left_us\": %.0f}\n", now_us(CLOCK_MONOTONIC));
    fflush(stdout);
    return 0;
}
