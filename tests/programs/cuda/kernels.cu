// The kernels of the software driver, for a real GPU: the same programs, and so the same checks, can run on both.
//     nvcc -ptx -rdc=true -o kernels.ptx kernels.cu    then: IMAGE=kernels.ptx checks order
extern "C" {
__device__ char counter[64];
}

extern "C" __global__ void spin_us(unsigned *out, unsigned us, unsigned n, unsigned mix) {
    unsigned long long start, now;
    if (blockIdx.x || threadIdx.x) return;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < us * 1000ull);
    for (unsigned i = 0; i < n; i++) out[i] = (out[i] ^ mix) * 1664525u + 1013904223u + i;
}

extern "C" __global__ void add(unsigned *out, const unsigned *a, const unsigned *b, unsigned n) {
    if (blockIdx.x || threadIdx.x) return;
    for (unsigned i = 0; i < n; i++) out[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy(float *y, const float *x, float a, unsigned n) {
    if (blockIdx.x || threadIdx.x) return;
    for (unsigned i = 0; i < n; i++) y[i] += a * x[i];
}

extern "C" __global__ void crash() { *(volatile int *)8 = 1; }
