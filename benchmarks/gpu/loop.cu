// A launch-bound CUDA program: what does one launch cost? It knows of no scheduler.
//   loop LAUNCHES EVERY    empty kernels on a stream, a sync after every EVERY of them and at the end
// Prints one JSON line: nanoseconds per launch from one sync to the next, the median of all such; nanoseconds in the
// launch call alone (true only while EVERY launches fit into the driver's queue); and a checksum that counts the syncs
// on the GPU.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <algorithm>
#include <time.h>
#include <vector>
#define CK(x) do { cudaError_t e_ = (x); if (e_) { fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e_)); exit(3); } } while (0)

static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
__global__ void empty() {}
__global__ void mix(unsigned *v, unsigned i) { *v = (*v ^ i) * 1664525u + 1013904223u; }

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "loop LAUNCHES EVERY\n"), 2;
    long launches = atol(argv[1]), every = atol(argv[2]);
    unsigned *v, sum = 0;
    cudaStream_t s;
    CK(cudaMalloc(&v, sizeof *v));
    CK(cudaMemset(v, 0, sizeof *v));
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (int i = 0; i < 1000; i++) empty<<<1, 1, 0, s>>>();
    CK(cudaDeviceSynchronize());
    double in_calls = 0;
    std::vector<double> each;
    for (long done = 0; done < launches;) {
        double since = now();
        long n = every && every < launches - done ? every : launches - done;
        for (long i = 0; i < n; i++) empty<<<1, 1, 0, s>>>();
        in_calls += now() - since;
        done += n;
        mix<<<1, 1, 0, s>>>(v, (unsigned)done);
        CK(cudaStreamSynchronize(s));
        each.push_back((now() - since) / n);
    }
    if (each.empty()) return fprintf(stderr, "no launches\n"), 2;
    std::nth_element(each.begin(), each.begin() + each.size() / 2, each.end());
    CK(cudaMemcpy(&sum, v, sizeof sum, cudaMemcpyDeviceToHost));
    printf("{\"launches\": %ld, \"ns_per_launch\": %.1f, \"ns_per_call\": %.1f, \"checksum\": %u}\n", launches,
           each[each.size() / 2], in_calls / launches, sum);
    return 0;
}
