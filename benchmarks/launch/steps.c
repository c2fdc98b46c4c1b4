/* Steps of training, as the GPU of timed.c sees them: 700 kernels of 8 to 350 us, 25 ms in all, which a CPU sends in 14,
 * but that it is away for a while in every third step.
 *   steps COUNT AWAY_MS
 * Prints one JSON line: what a step takes, how many gates it meets, and for how long the GPU goes on when one closes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KERNELS = 700, LAUNCH_US = 20, WARM_UP = 40, LOOK_EVERY = 10 };

extern int cuInit(unsigned), cuStreamSynchronize(void *);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                          void **);
extern size_t gpu_seen(uint64_t *gates, double **went_on_us);

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void work(double us) {
    for (double until = now_us() + us; now_us() < until;) {}
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static char function[1];
    uint32_t us[KERNELS];
    uint64_t before = 0, after;
    double since = 0, *went_on;
    if (argc != 3) return fprintf(stderr, "steps COUNT AWAY_MS\n"), 2;
    int count = atoi(argv[1]);
    double away_us = atof(argv[2]) * 1000;
    srand(7);
    for (int i = 0; i < KERNELS; i++) {
        int kind = rand() % 100;
        us[i] = kind < 60 ? 8 : kind < 85 ? 30 : kind < 97 ? 120 : 350;
    }
    if (cuInit(0)) return 1;
    for (int step = 0; step < WARM_UP + count; step++) {
        if (step == WARM_UP) {
            cuStreamSynchronize(NULL);
            gpu_seen(&before, &went_on);
            since = now_us();
        }
        for (unsigned i = 0; i < KERNELS; i++) {
            void *params[] = {&us[i]};
            work(LAUNCH_US);
            if (i == KERNELS / 2 && step % 3 == 2) work(away_us);
            cuLaunchKernel(function, i + 1, 1, 1, 128, 1, 1, 0, NULL, params, NULL);
        }
        if (step % LOOK_EVERY == LOOK_EVERY - 1) cuStreamSynchronize(NULL);
    }
    cuStreamSynchronize(NULL);
    double ms = (now_us() - since) / count / 1000;
    size_t closed = gpu_seen(&after, &went_on);
    qsort(went_on, closed, sizeof *went_on, compare);
    printf("{\"step_ms\": %.3f, \"gates\": %.1f, \"closed\": %zu, \"went_on_us\": [%.0f, %.0f]}\n", ms,
           (double)(after - before) / count, closed, closed ? went_on[closed / 2] : 0, closed ? went_on[closed * 9 / 10] : 0);
    return 0;
}
