/* For LD_PRELOAD: a machine on which llvmpipe's thread is interrupted before it gives a mutex back, and the program
 * before it waits for a fence. With MALLOC_PERTURB_ what is freed meanwhile is no mutex any more: then the program ends
 * with 66, and with 67 if there never was a fence to wait for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INTERRUPTED_US = 1000, LATE_US = 1500, DIFFERENT_US = 4000, GONE = 66, NEVER = 67 };
static int waits;

static int is_rasterizer(void) {
    static _Thread_local int known;
    char name[16] = "";
    if (!known) known = !pthread_getname_np(pthread_self(), name, sizeof name) && strstr(name, "llvmpipe") ? 2 : 1;
    return known == 2;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    static int (*real)(pthread_mutex_t *);
    if (!real) real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    if (is_rasterizer()) {
        int owner = mutex->__data.__owner;
        usleep(INTERRUPTED_US);
        if (mutex->__data.__owner != owner) _exit(GONE);
    }
    return real(mutex);
}

/* The real dlsym: that of the interposer would find its own functions. */
static void *find(const char *name) {
    void *(*look_up)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    return look_up(dlopen("libGLESv2.so.2", RTLD_LAZY | RTLD_NOLOAD), name);
}

unsigned glClientWaitSync(void *sync, unsigned flags, uint64_t timeout_ns);
unsigned glClientWaitSync(void *sync, unsigned flags, uint64_t timeout_ns) {
    void (*flush)(void) = (void (*)(void))find("glFlush");
    unsigned (*real)(void *, unsigned, uint64_t) = (unsigned (*)(void *, unsigned, uint64_t))find("glClientWaitSync");
    flush();
    usleep(LATE_US + (unsigned)random() % DIFFERENT_US);
    waits++;
    return real(sync, flags, timeout_ns);
}

__attribute__((destructor)) static void check(void) {
    if (!waits && getenv("LATE_CHECKED")) _exit(NEVER);
}
