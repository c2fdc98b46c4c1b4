// CudaMon's task (sections 3.3 and 5.2.1): a job of one LCG kernel every period, for as long as is wanted.
//   prng [--seeds N] [--threads N] [--iterations N] [--period-ms T] [--deadline-ms D] [--jobs N] [--times 1]
//   prng --info      prints how many multiprocessors the GPU has
// Writes "missed" or "pass" to stderr after every job and its time in ms to stdout, with --times after the moment in s; checks every result against the
// sequential generator; ends gracefully, between two kernels, on SIGINT. 7168 seeds in blocks of 128 are 70 % of a V100.
#include "lcg.h"
#include <cuda_runtime.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vector>
#define CK(x) do { cudaError_t e_ = (x); if (e_) { fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e_)); exit(3); } } while (0)

static volatile sig_atomic_t stopping;
static void stop(int) { stopping = 1; }
static double now_ms() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec * 1e-6; }

__global__ void generate(uint32_t *words, long count, long iterations) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    uint32_t v = words[i];
    for (long k = 0; k < iterations; k++) v = v * LCG_A + LCG_C;
    words[i] = v;
}

int main(int argc, char **argv) {
    long seeds = 7168, threads = 128, iterations = 200000, jobs = 0;
    double period = 10, deadline = 4.5;
    bool times = false;
    if (argc == 2 && !strcmp(argv[1], "--info")) {
        int count;
        CK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
        return printf("%d\n", count) < 0;
    }
    for (int i = 1; i + 1 < argc; i += 2) {
        double value = atof(argv[i + 1]);
        if (!strcmp(argv[i], "--seeds")) seeds = value;
        else if (!strcmp(argv[i], "--threads")) threads = value;
        else if (!strcmp(argv[i], "--iterations")) iterations = value;
        else if (!strcmp(argv[i], "--period-ms")) period = value;
        else if (!strcmp(argv[i], "--deadline-ms")) deadline = value;
        else if (!strcmp(argv[i], "--jobs")) jobs = value;
        else if (!strcmp(argv[i], "--times")) times = value != 0;
        else return fprintf(stderr, "prng: unknown option %s\n", argv[i]), 2;
    }
    struct sigaction action = {};
    action.sa_handler = stop;
    sigaction(SIGINT, &action, NULL);
    std::vector<uint32_t> host(seeds);
    uint32_t *words;
    CK(cudaMalloc(&words, seeds * sizeof *words));
    double due = now_ms();
    for (long job = 0; !stopping && (!jobs || job < jobs); job++) {
        for (long i = 0; i < seeds; i++) host[i] = lcg_seed(i + job);
        double began = now_ms();
        CK(cudaMemcpy(words, host.data(), seeds * sizeof *words, cudaMemcpyHostToDevice));
        generate<<<(seeds + threads - 1) / threads, threads>>>(words, seeds, iterations);
        CK(cudaMemcpy(host.data(), words, seeds * sizeof *words, cudaMemcpyDeviceToHost));
        double took = now_ms() - began;
        for (long i = 0; i < seeds; i++)
            if (host[i] != lcg_jump(lcg_seed(i + job), iterations)) return fprintf(stderr, "wrong at %ld\n", i), 4;
        fprintf(stderr, took > deadline ? "missed\n" : "pass\n");
        if (times) printf("%.6f ", now_ms() / 1e3);
        printf("%.3f\n", took);
        fflush(stdout);
        due += period;
        while (!stopping && now_ms() < due) {
            timespec nap = {0, 100000};
            nanosleep(&nap, NULL);
        }
        if (due < now_ms()) due = now_ms();
    }
    return 0;
}
