/* Kernels that need the whole device: their blocks may wait for each other, and would do so for ever if not all of them
 * were there at once. */
#define _GNU_SOURCE
#include "green.h"
#include "loader.h"
#include <stddef.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"
#define SUCCESS 0
/* Attributes of a function: its clusters have a size. */
#define CLUSTER_MUST_BE_SET 10
#define CLUSTER_WIDTH 11
/* A program that asks how many multiprocessors there are may launch so many blocks for each, at most, that all of them
 * are there at once. */
#define RESIDENT 32

/* Launch attributes that say nothing of which blocks run together, nor of the kernel before: no attribute, memory that
 * is kept in the cache, how a host waits, priority, domains of memory (twice), and the size of the shared memory. */
static const int harmless[] = {0, 1, 3, 8, 9, 10, 14};

static bool is_harmless(int id) {
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (harmless[i] == id) return true;
    return false;
}

/* Names of kernels that wait for their own other blocks, or for other devices' kernels, without being launched as
 * cooperative: collectives, persistent networks of cuDNN, sums of split products, barriers of a grid. */
static const char *const names[] = {
    "nccl", "nvshmem", "ersist", "ooperative", "tream_k", "treamK", "StreamK", "rid_sync", "rid_barrier", "gridbarrier",
    "ll_reduce", "llreduce", "AllReduce", "cross_device", "multimem", NULL,
};

static bool is_named(const void *kernel) {
    static int (*name_of)(const char **, const void *);
    static bool tried;
    const char *name = NULL;
    if (!tried) name_of = hw_find_in(LIBRARY, "cuFuncGetName");
    tried = true;
    if (!name_of || name_of(&name, kernel) != SUCCESS || !name) return false;
    for (const char *const *one = names; *one; one++)
        if (strstr(name, *one)) return true;
    return false;
}

/* A kernel of a library, which belongs to no context, has no attributes before its function is asked for. */
static bool has_clusters(const void *kernel) {
    static int (*attribute)(int *, int, const void *), (*function)(const void **, const void *);
    static bool tried;
    int must = 0, width = 0;
    if (!tried) {
        attribute = hw_find_in(LIBRARY, "cuFuncGetAttribute");
        function = hw_find_in(LIBRARY, "cuKernelGetFunction");
    }
    tried = true;
    if (!attribute) return false; /* such a driver has no clusters */
    if (attribute(&must, CLUSTER_MUST_BE_SET, kernel) != SUCCESS &&
        (!function || function(&kernel, kernel) != SUCCESS ||
         attribute(&must, CLUSTER_MUST_BE_SET, kernel) != SUCCESS))
        return true;
    return must || attribute(&width, CLUSTER_WIDTH, kernel) != SUCCESS || width > 0;
}

bool hw_needs_whole(const void *kernel, uint64_t blocks, const struct hw_attribute *attributes, unsigned count,
                    unsigned sms, bool count_known) {
    if (count && !attributes) return true;
    for (unsigned i = 0; i < count; i++)
        if (!is_harmless(attributes[i].id)) return true;
    if (count_known && sms && blocks % sms == 0 && blocks / sms <= RESIDENT) return true;
    return has_clusters(kernel) || is_named(kernel);
}
