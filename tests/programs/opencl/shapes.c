/* Kernels and copies in four shapes each, then in four more among them: for predictions of shapes that were never seen.
 *
 *     shapes ROUNDS
 *
 * `chain` does the same for each item, `product` multiplies matrices with an item for each element, `sweep` has 1024 items
 * walk over a buffer; and there are copies to the device. Each is waited for. */
#include "reach.h"
#include <stdlib.h>

#define ITEMS (1 << 18)
#define BYTES (12u << 20)

static const char *source =
    "__kernel void chain(__global float *x, __global const float *y, float a) {\n"
    "    size_t i = get_global_id(0); float s = x[i];\n"
    "    for (int k = 0; k < 200; k++) s = s * a + y[i];\n"
    "    x[i] = s; }\n"
    "__kernel void product(__global float *c, __global const float *a, __global const float *b) {\n"
    "    size_t i = get_global_id(0), j = get_global_id(1), n = get_global_size(0); float s = 0;\n"
    "    for (size_t k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];\n"
    "    c[i * n + j] = s; }\n"
    "__kernel void sweep(__global float *x, uint n) {\n"
    "    size_t i = get_global_id(0), m = get_global_size(0); float s = 0;\n"
    "    for (uint k = i; k < n; k += m) for (int r = 0; r < 8; r++) s += x[k] * r;\n"
    "    x[i] = s; }\n";
static const size_t items[] = {4096, 16384, 65536, 131072, 8192, 32768, 49152, 262144};
static const size_t sides[] = {32, 64, 128, 96, 48, 80, 112, 160};
static const size_t sizes[] = {1 << 19, 1 << 20, 1 << 21, 3 << 20, 3 << 19, 5 << 19, 7 << 19, 4 << 20};
static const size_t bytes[] = {1 << 18, 1 << 20, 4 << 20, 8 << 20, 1 << 19, 2 << 20, 6 << 20, 12 << 20};

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    size_t local[] = {64, 1}, square[] = {8, 8};
    cl_mem a = NULL, b = NULL, c = NULL, walked[8];
    char *host = calloc(1, BYTES);
    float half = 0.5f;
    begin_with(source);
    cl_kernel chain = kernel("chain"), product = kernel("product"), sweep = kernel("sweep");
    cl_command_queue queue = make_queue(0);
    cl_mem *all[] = {&a, &b, &c};
    for (int i = 0; i < 3; i++) *all[i] = buffer(BYTES);
    for (int i = 0; i < 8; i++) walked[i] = buffer(sizes[i]);
    CK(clSetKernelArg(chain, 0, sizeof a, &a));
    CK(clSetKernelArg(chain, 1, sizeof b, &b));
    CK(clSetKernelArg(chain, 2, sizeof half, &half));
    for (cl_uint i = 0; i < 3; i++) CK(clSetKernelArg(product, i, sizeof a, all[2 - i]));
    srand(3);
    for (int round = 0; round < 8 * rounds; round++) {
        int shape = round % 4;
        if (round >= 4 * rounds && rand() % 2) shape += 4;
        size_t side[] = {sides[shape], sides[shape]}, walkers = 1024;
        cl_uint words = (cl_uint)(sizes[shape] / 4);
        CK(clEnqueueNDRangeKernel(queue, chain, 1, NULL, &items[shape], local, 0, NULL, NULL));
        CK(clFinish(queue));
        CK(clEnqueueNDRangeKernel(queue, product, 2, NULL, side, square, 0, NULL, NULL));
        CK(clFinish(queue));
        CK(clSetKernelArg(sweep, 0, sizeof walked[shape], &walked[shape]));
        CK(clSetKernelArg(sweep, 1, sizeof words, &words));
        CK(clEnqueueNDRangeKernel(queue, sweep, 1, NULL, &walkers, local, 0, NULL, NULL));
        CK(clFinish(queue));
        CK(clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, bytes[shape], host, 0, NULL, NULL));
        CK(clFinish(queue));
    }
    return 0;
}
