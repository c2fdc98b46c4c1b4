/* Functions that begin like a launch and are like none, for what passes an interposer by: as a driver (-DDRIVER),
 * and as a program that looks them up and calls each once. Prints "6.5 10.5 111 4.5 19900". */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

#define TEN(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7) X(n##8) X(n##9)
#define HUNDRED(X, n) \
    TEN(X, n##0) TEN(X, n##1) TEN(X, n##2) TEN(X, n##3) TEN(X, n##4) \
    TEN(X, n##5) TEN(X, n##6) TEN(X, n##7) TEN(X, n##8) TEN(X, n##9)

struct wide {
    double a, b;
    long c[6];
};

#ifdef DRIVER

struct wide cuLaunchStrange(int a, double b, long c, float d, int e, int f, int g, int h, struct wide w, char i) {
    return (struct wide){a + b + d, w.a + w.b + c, {e + f + g + h + i + w.c[5]}};
}

double cuLaunchMany(int count, ...) {
    double sum = 0;
    va_list list;
    va_start(list, count);
    while (count--) sum += va_arg(list, double);
    va_end(list);
    return sum;
}

#define PLAIN(n) \
    int cuLaunch1##n(void) { return 1##n - 1000; }
HUNDRED(PLAIN, 0)
HUNDRED(PLAIN, 1)

#else

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    struct wide (*strange)(int, double, long, float, int, int, int, int, struct wide, char) =
        dlsym(driver, "cuLaunchStrange");
    double (*many)(int, ...) = dlsym(driver, "cuLaunchMany");
    struct wide given = {2.5, 4, {0, 0, 0, 0, 0, 100}}, got = strange(1, 2.5, 4, 3, 1, 2, 3, 4, given, 1);
    int sum = 0;
    for (int i = 1000; i < 1200; i++) {
        char name[20];
        snprintf(name, sizeof name, "cuLaunch%d", i);
        sum += ((int (*)(void))dlsym(driver, name))();
    }
    printf("%g %g %ld %g %d\n", got.a, got.b, got.c[0], many(3, 1.0, 1.5, 2.0), sum);
    return 0;
}

#endif
