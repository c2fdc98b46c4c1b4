/* What the OpenCL test programs have in common: a device, and errors that end the program. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The call as it is written, and what it gave. */
#define CK(call) \
    do { \
        cl_int error_ = (call); \
        if (error_ != CL_SUCCESS) fprintf(stderr, "%s: error %d\n", #call, error_), exit(3); \
    } while (0)

static cl_context context;
static cl_device_id device;
static cl_program program;

/* Loops of about a microsecond are what `spin` gets; what it makes of its memory tells how often it ran, in
 * which order, and with which numbers. What its loops compute is never 0, which no compiler knows: one that finds it
 * unused leaves them out, `volatile` or not. */
static const char *const spins __attribute__((unused)) =
    "__kernel void spin(__global uint *out, uint loops, uint mix) {\n"
    "    uint i = get_global_id(0), x = out[i];\n"
    "    x = (x ^ mix) * 1664525u + 1013904223u + i;\n"
    "    volatile uint y = x | 1u;\n"
    "    for (uint n = 0; n < loops; n++) {\n"
    "        uint z = y;\n"
    "        z ^= z << 13;\n"
    "        z ^= z >> 17;\n"
    "        y = z ^ (z << 5);\n"
    "    }\n"
    "    out[i] = y ? x : 0u;\n"
    "}\n"
    "__kernel void one(__global uint *out) { out[0] = out[0] * 3u + 1u; }\n";

/* A GPU if there is one. */
static void choose_device(void) {
    cl_platform_id platforms[8];
    cl_uint count;
    CK(clGetPlatformIDs(8, platforms, &count));
    for (cl_uint i = 0; i < count && i < 8; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_GPU, 1, &device, NULL) == CL_SUCCESS) return;
    CK(clGetDeviceIDs(platforms[0], CL_DEVICE_TYPE_ALL, 1, &device, NULL));
}

static inline void begin_with(const char *text) {
    cl_int error;
    choose_device();
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    CK(error);
    program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    CK(error);
    CK(clBuildProgram(program, 1, &device, "", NULL, NULL));
}

static inline void begin(void) { begin_with(spins); }

static inline cl_kernel kernel(const char *name) {
    cl_int error;
    cl_kernel made = clCreateKernel(program, name, &error);
    CK(error);
    return made;
}

static inline cl_command_queue make_queue(cl_command_queue_properties properties) {
    cl_int error;
    cl_command_queue made = clCreateCommandQueue(context, device, properties, &error);
    CK(error);
    return made;
}

static inline cl_mem buffer(size_t size) {
    cl_int error;
    cl_mem made = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &error);
    CK(error);
    return made;
}

static inline cl_int spin(cl_command_queue queue, cl_kernel k, cl_mem out, uint32_t loops, uint32_t mix, size_t words,
                          cl_uint count, const cl_event *list, cl_event *event) {
    CK(clSetKernelArg(k, 0, sizeof out, &out));
    CK(clSetKernelArg(k, 1, sizeof loops, &loops));
    CK(clSetKernelArg(k, 2, sizeof mix, &mix));
    return clEnqueueNDRangeKernel(queue, k, 1, NULL, &words, NULL, count, list, event);
}

static inline double now_us(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static inline double now(void) { return now_us(CLOCK_MONOTONIC); }
