/* gpus SECONDS: work on the default streams of two GPUs' contexts, by a thread for each, and then a checksum of each.
 * gpus SECONDS turns: the same by one thread, which goes from context to context. */
#include "reach.h"
#include <pthread.h>
#include <time.h>

enum { N = 16, ROW = 10, US = 200 };
static double end;
static struct place {
    CUcontext context;
    CUfunction spin;
    CUdeviceptr words;
    uint32_t launches;
} places[2];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void prepare(struct place *place, int device) {
    CUmodule module;
    CK(cu.DevicePrimaryCtxRetain(&place->context, device));
    CK(cu.CtxSetCurrent(place->context));
    CK(cu.ModuleLoadData(&module, image()));
    CK(cu.ModuleGetFunction(&place->spin, module, "spin_us"));
    CK(cu.MemAlloc(&place->words, N * 4));
    CK(cu.MemsetD32(place->words, 0, N));
}

static void launch(struct place *place) {
    for (int i = 0; i < ROW; i++) CK(spin(place->spin, NULL, place->words, US, N, place->launches++ % 8));
}

static void *work(void *it) {
    struct place *place = it;
    CK(cu.CtxSetCurrent(place->context));
    while (now() < end) {
        launch(place);
        CK(cu.CtxSynchronize());
    }
    return NULL;
}

static void work_in_turns(void) {
    while (now() < end)
        for (int i = 0; i < 2; i++) {
            CK(cu.CtxSetCurrent(places[i].context));
            launch(&places[i]);
            CK(cu.CtxSetCurrent(places[!i].context));
            CK(cu.StreamSynchronize(NULL)); /* the other's */
        }
}

static uint32_t expected(uint32_t launches) {
    uint32_t x = 0;
    for (uint32_t i = 0; i < launches; i++) x = (x ^ i % 8) * 1664525u + 1013904223u;
    return x;
}

int main(int count, char **words) {
    pthread_t threads[2];
    begin();
    for (int i = 0; i < 2; i++) prepare(&places[i], i);
    end = now() + atof(words[1]);
    if (count > 2) work_in_turns();
    for (int i = 0; i < 2 && count <= 2; i++) pthread_create(&threads[i], NULL, work, &places[i]);
    for (int i = 0; i < 2 && count <= 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        uint32_t found[N];
        CK(cu.CtxSetCurrent(places[i].context));
        CK(cu.MemcpyDtoH(found, places[i].words, sizeof found));
        printf("%u %s\n", places[i].launches, found[0] == expected(places[i].launches) ? "right" : "wrong");
    }
    return 0;
}
