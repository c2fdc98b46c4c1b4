/* The same task in OpenCL, on a part of the device: a sub-device of so many compute units is a real partition.
 *   prng_cl [--seeds N] [--threads N] [--iterations N] [--units N] [--period-ms T] [--deadline-ms D] [--jobs N] [--times 1]
 *   prng_cl --info      prints how many compute units the device has
 * Without --units it has the part that CUDA_MPS_ACTIVE_THREAD_PERCENTAGE says, as a launcher sets that for each program, or
 * the whole device. --threads: so many work-items are a group. Writes "missed" or "pass" to stderr after every job, its time in ms to
 * stdout, with --times after the moment in s; checks every result against the sequential generator; ends between two kernels on SIGINT. */
#define CL_TARGET_OPENCL_VERSION 120
#define _GNU_SOURCE
#include "lcg.h"
#include <CL/cl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define CK(x) do { cl_int e_ = (x); if (e_) { fprintf(stderr, "%s: error %d\n", #x, e_); exit(3); } } while (0)

static volatile sig_atomic_t stopping;
static void stop(int number) { (void)number; stopping = 1; }
static double now_ms(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec * 1e-6; }

static const char *source =
    "__kernel void generate(__global uint *words, long iterations) {\n"
    "    size_t i = get_global_id(0);\n"
    "    uint v = words[i];\n"
    "    for (long k = 0; k < iterations; k++) v = v * 1664525u + 1013904223u;\n"
    "    words[i] = v;\n"
    "}\n";

int main(int argc, char **argv) {
    long seeds = 1024, threads = 0, iterations = 200000, units = 0, jobs = 0, times = 0;
    double period = 10, deadline = 4.5;
    for (int i = 1; i + 1 < argc; i += 2) {
        double value = atof(argv[i + 1]);
        if (!strcmp(argv[i], "--seeds")) seeds = (long)value;
        else if (!strcmp(argv[i], "--threads")) threads = (long)value;
        else if (!strcmp(argv[i], "--times")) times = (long)value;
        else if (!strcmp(argv[i], "--iterations")) iterations = (long)value;
        else if (!strcmp(argv[i], "--units")) units = (long)value;
        else if (!strcmp(argv[i], "--period-ms")) period = value;
        else if (!strcmp(argv[i], "--deadline-ms")) deadline = value;
        else if (!strcmp(argv[i], "--jobs")) jobs = (long)value;
        else return fprintf(stderr, "prng_cl: unknown option %s\n", argv[i]), 2;
    }
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGINT, &action, NULL);
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    CK(clGetPlatformIDs(1, &platform, NULL));
    CK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_uint all;
    CK(clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof all, &all, NULL));
    if (argc == 2 && !strcmp(argv[1], "--info")) return printf("%u\n", all) < 0;
    const char *share = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    if (!units && share && atof(share) < 100) units = (long)(all * atof(share) / 100) ? (long)(all * atof(share) / 100) : 1;
    if (units) {
        cl_device_partition_property part[] = {CL_DEVICE_PARTITION_BY_COUNTS, units, CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
        CK(clCreateSubDevices(device, part, 1, &device, NULL));
    }
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    CK(error);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    CK(error);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &error);
    CK(error);
    CK(clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "generate", &error);
    CK(error);
    size_t bytes = (size_t)seeds * sizeof(uint32_t), global = (size_t)seeds, local = (size_t)threads;
    uint32_t *host = malloc(bytes);
    cl_mem words = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    CK(error);
    cl_long count = iterations;
    CK(clSetKernelArg(kernel, 0, sizeof words, &words));
    CK(clSetKernelArg(kernel, 1, sizeof count, &count));
    double due = now_ms();
    for (long job = 0; !stopping && (!jobs || job < jobs); job++) {
        for (long i = 0; i < seeds; i++) host[i] = lcg_seed(i + job);
        double began = now_ms();
        CK(clEnqueueWriteBuffer(queue, words, CL_FALSE, 0, bytes, host, 0, NULL, NULL));
        CK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, threads ? &local : NULL, 0, NULL, NULL));
        CK(clEnqueueReadBuffer(queue, words, CL_TRUE, 0, bytes, host, 0, NULL, NULL));
        double took = now_ms() - began;
        for (long i = 0; i < seeds; i++)
            if (host[i] != lcg_jump(lcg_seed(i + job), iterations)) return fprintf(stderr, "wrong at %ld\n", i), 4;
        fprintf(stderr, took > deadline ? "missed\n" : "pass\n");
        if (times) printf("%.6f ", now_ms() / 1e3);
        printf("%.3f\n", took);
        fflush(stdout);
        due += period;
        while (!stopping && now_ms() < due) {
            struct timespec nap = {0, 100000};
            nanosleep(&nap, NULL);
        }
        if (due < now_ms()) due = now_ms();
    }
    return 0;
}
