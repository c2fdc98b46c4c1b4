/* For LD_PRELOAD: a machine on which llvmpipe's thread is interrupted now and then, just before it gives a mutex back.
 * If the memory is none of a mutex any more when it goes on (with MALLOC_PERTURB_, and no cache of freed memory, it can be
 * told), the program ends with 66; and with 67 if its thread was never interrupted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { ONE_OF = 61, INTERRUPTED_US = 15000, GONE = 66, NEVER = 67 };
static int given_back; /* it does so some times for every scene, so one of a prime number is of all kinds */

static int is_rasterizer(void) {
    static _Thread_local int known;
    char name[16] = "";
    if (!known) known = !pthread_getname_np(pthread_self(), name, sizeof name) && strstr(name, "llvmpipe") ? 2 : 1;
    return known == 2;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    static int (*real)(pthread_mutex_t *);
    if (!real) real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    if (is_rasterizer() && ++given_back % ONE_OF == 0) {
        int owner = mutex->__data.__owner;
        usleep(INTERRUPTED_US);
        if (mutex->__data.__owner != owner) _exit(GONE);
    }
    return real(mutex);
}

__attribute__((destructor)) static void check(void) {
    if (given_back < ONE_OF) _exit(NEVER);
}
