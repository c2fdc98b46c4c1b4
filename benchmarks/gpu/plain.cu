// Ordinary CUDA programs, done as jobs. They know of no scheduler.
//   plain KIND    short | mixed | streams | copies | long
// Says a JSON line when it is ready, and one for every line it is told: AT SECONDS PERIOD_MS POISSON SEED
// (AT in UNIX time; without a period a job begins as soon as the last one is done). ITERS_PER_US comes from `app cal`.
#include <cuda_runtime.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>
#include <time.h>
#include <unistd.h>
#define CK(x) do { cudaError_t e_ = (x); if (e_) { fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e_)); exit(3); } } while (0)

static const int BLOCKS = 264, THREADS = 512, STREAMS = 4;
static const size_t COPY = 64u << 20;
static unsigned *field;
static char *device, *pinned, *pageable;
static cudaStream_t streams[STREAMS];
static double per_us;

static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec * 1e-3; }
static double wall() { timespec t; clock_gettime(CLOCK_REALTIME, &t); return t.tv_sec + t.tv_nsec * 1e-9; }

__global__ void lcg(unsigned *out, int iters) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, v = out[x];
    for (int i = 0; i < iters; i++) v = v * 1664525u + 1013904223u;
    out[x] = v;
}

static void kernel(double us, int stream = 0) {
    lcg<<<BLOCKS, THREADS, 0, streams[stream]>>>(field + stream * BLOCKS * THREADS, (int)(us * per_us));
}

static void job(const std::string &kind) {
    if (kind == "short") for (int i = 0; i < 20; i++) kernel(100);
    if (kind == "mixed") {  // a long kernel among short ones
        for (int i = 0; i < 30; i++) kernel(20);
        kernel(2000);
        for (int i = 0; i < 30; i++) kernel(20);
    }
    if (kind == "streams") {
        for (int i = 0; i < 8; i++) for (int s = 0; s < STREAMS; s++) kernel(40, s);
        for (int s = 1; s < STREAMS; s++) CK(cudaStreamSynchronize(streams[s]));
    }
    if (kind == "copies") {  // 64 MiB each way, pinned, pageable, and on the device
        CK(cudaMemcpyAsync(device, pinned, COPY, cudaMemcpyHostToDevice, streams[0]));
        kernel(200);
        CK(cudaMemcpyAsync(device + COPY, device, COPY, cudaMemcpyDeviceToDevice, streams[0]));
        CK(cudaMemcpyAsync(pinned, device + COPY, COPY, cudaMemcpyDeviceToHost, streams[0]));
        CK(cudaMemcpy(pageable, device, COPY / 4, cudaMemcpyDeviceToHost));
    }
    if (kind == "long") kernel(5000);
    CK(cudaStreamSynchronize(streams[0]));
}

int main(int argc, char **argv) {
    std::string kind = argc == 2 ? argv[1] : "";
    const char *speed = getenv("ITERS_PER_US");
    if (!speed || !strstr(" short mixed streams copies long ", (" " + kind + " ").c_str()))
        return fprintf(stderr, "ITERS_PER_US=N plain short | mixed | streams | copies | long\n"), 2;
    per_us = atof(speed);
    size_t bytes = sizeof(unsigned) * BLOCKS * THREADS * STREAMS;
    CK(cudaMalloc(&field, bytes));
    for (auto &stream : streams) CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (kind == "copies") {
        CK(cudaMalloc(&device, 2 * COPY));
        CK(cudaMallocHost(&pinned, COPY));
        pageable = (char *)calloc(1, COPY);
        memset(pinned, 1, COPY);
    }
    for (int i = 0; i < 4; i++) job(kind);
    printf("{\"ready\": \"%s\"}\n", kind.c_str());
    fflush(stdout);
    double at, seconds, period;
    int poisson, seed;
    while (scanf("%lf %lf %lf %d %d", &at, &seconds, &period, &poisson, &seed) == 5) {
        CK(cudaMemset(field, 0, bytes));
        CK(cudaDeviceSynchronize());
        std::mt19937 random(seed);
        std::exponential_distribution<double> gap(1);
        std::vector<double> took;
        while (wall() < at) usleep(100);
        double since = now(), due = since;
        for (;;) {
            if (period > 0) {
                due += period * 1e3 * (poisson ? gap(random) : 1);
                while (now() < due) if (due - now() > 300) usleep(100);
            }
            double began = now();
            if (began - since >= seconds * 1e6) break;
            job(kind);
            took.push_back(now() - began);
            if (period > 0 && due < now() - period * 1e3) due = now() - period * 1e3;
        }
        double elapsed = (now() - since) * 1e-6;
        std::vector<unsigned> host(BLOCKS * THREADS * STREAMS);
        // After as many jobs as every round has: the same numbers, whoever ran beside it.
        CK(cudaMemset(field, 0, bytes));
        CK(cudaDeviceSynchronize());
        for (int i = 0; i < 2; i++) job(kind);
        CK(cudaMemcpy(host.data(), field, bytes, cudaMemcpyDeviceToHost));
        unsigned sum = 0;
        for (unsigned v : host) sum = sum * 31 + v;
        printf("{\"jobs\": %zu, \"per_s\": %.3f, \"hash\": \"%08x\", \"us\": [", took.size(), took.size() / elapsed, sum);
        for (size_t i = 0; i < took.size(); i++) printf("%s%.1f", i ? "," : "", took[i]);
        printf("]}\n");
        fflush(stdout);
    }
    return 0;
}
