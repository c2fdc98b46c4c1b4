/* Launches as fast as they go, and with all caches used by others in between: a framework does much between two of
 * them. Also launches that are waited for, and looks at events. Prints one JSON line, ns for each, the best of the
 * rounds. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { KERNELS = 256, ROUNDS = 9, HOT = 500000, COLD = 4000, FROZEN = 300, WAITED = 50000, MANY = 20000, KINDS = 5 };
enum { LINE = 64, SOME = 1 << 18, ALL = 1 << 23, CODE = 1 << 21 };

extern int cuInit(unsigned flags), cuStreamSynchronize(void *stream), cuEventQuery(void *event);
extern int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **params, void **extra);

extern unsigned long null_gates;
static char functions[KERNELS][16], others[ALL];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void launch(unsigned i) { cuLaunchKernel(functions[i * 7 % KERNELS], 64 + i % 4, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL); }

static double hot(void) {
    double since = now();
    for (unsigned i = 0; i < HOT; i++) launch(i);
    return (now() - since) / HOT;
}

static void (*other_code)(void);

/* A function that runs through all of its lines, each once, in no order. */
static void make_other_code(void) {
#if defined(__x86_64__)
    uint8_t *code = mmap(NULL, CODE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static uint32_t order[CODE / LINE];
    if (code == MAP_FAILED) exit(2);
    for (uint32_t i = 0; i < CODE / LINE; i++) order[i] = i;
    for (uint32_t i = CODE / LINE - 1; i > 1; i--) {
        uint32_t other = 1 + (uint32_t)rand() % i, kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (uint32_t i = 0; i + 1 < CODE / LINE; i++) {
        int32_t far = ((int32_t)order[i + 1] - (int32_t)order[i]) * LINE - 5;
        code[order[i] * LINE] = 0xe9; /* jmp */
        memcpy(code + order[i] * LINE + 1, &far, sizeof far);
    }
    code[order[CODE / LINE - 1] * LINE] = 0xc3; /* ret */
    if (mprotect(code, CODE, PROT_READ | PROT_EXEC)) exit(2);
    memcpy(&other_code, &code, sizeof code);
#endif
}

static double after_others(unsigned times, unsigned used) {
    double sum = 0;
    for (unsigned i = 0; i < times; i++) {
        for (unsigned at = 0; at < used; at += LINE) others[(at + i * LINE) % ALL]++;
        if (used == ALL && other_code) other_code();
        double since = now();
        launch(i);
        sum += now() - since;
    }
    return sum / times;
}

static double cold(void) { return after_others(COLD, SOME); }

static double frozen(void) { return after_others(FROZEN, ALL); }

static double waited(void) {
    double since = now();
    for (unsigned i = 0; i < WAITED; i++) launch(i), cuStreamSynchronize(NULL);
    return (now() - since) / WAITED;
}

static double queried(void) {
    double since = now();
    for (unsigned i = 0; i < WAITED; i++) cuEventQuery(others);
    return (now() - since) / WAITED;
}

int main(int arguments, char **argument) {
    double (*const kinds[KINDS])(void) = {hot, cold, frozen, waited, queried}, best[KINDS];
    static const char *const names[KINDS] = {"hot", "cold", "frozen", "waited", "queried"};
    if (cuInit(0)) return 1;
    if (arguments > 1 && !strcmp(argument[1], "idle")) {
        launch(0), cuStreamSynchronize(NULL);
        puts("{}"), fflush(stdout);
        return getchar() == EOF;
    }
    if (arguments > 1 && !strcmp(argument[1], "gates")) {
        for (unsigned i = 0; i < MANY; i++) launch(i);
        return printf("{\"launches\": %d, \"gates\": %lu}\n", MANY, null_gates) < 0;
    }
    make_other_code();
    for (int round = 0; round < ROUNDS; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            double took = kinds[kind]();
            if (!round || took < best[kind]) best[kind] = took;
        }
    for (int kind = 0; kind < KINDS; kind++) printf("%s\"%s\": %.1f", kind ? ", " : "{", names[kind], best[kind]);
    puts("}");
    return 0;
}
