/* The interposer's own code in a program's thread. One rule for all of it: a thread is cancelled neither under a
 * lock nor in the middle of something. So whoever calls from a program's thread begins with HW_OWN, which also keeps
 * errno as the program had it; the driver's functions that the program called run as the program called them. Only
 * where a thread waits for a turn with nothing in its hands it may be cancelled, as in a driver that waits. */
#ifndef HEADWAY_OWN_H
#define HEADWAY_OWN_H

#include <errno.h>
#include <pthread.h>

struct hw_own {
    int error, cancel;
};

/* Of this thread: how deep it is in code of ours, and whether it may be cancelled outside. */
struct hw_outside {
    int depth, cancel;
};
extern _Thread_local struct hw_outside hw_outside __attribute__((visibility("hidden")));

static inline struct hw_own hw_own_begin(void) {
    struct hw_own own = {.error = errno};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &own.cancel);
    if (!hw_outside.depth++) hw_outside.cancel = own.cancel;
    return own;
}

static inline void hw_own_end(const struct hw_own *own) {
    hw_outside.depth--;
    errno = own->error;
    pthread_setcancelstate(own->cancel, NULL);
}

#define HW_OWN __attribute__((cleanup(hw_own_end), unused)) struct hw_own hw_own_here = hw_own_begin()

/* The same with a lock, for the rest of the block. */
struct hw_hold {
    struct hw_own own;
    pthread_mutex_t *lock;
};

static inline struct hw_hold hw_hold_begin(pthread_mutex_t *lock) {
    struct hw_hold hold = {hw_own_begin(), lock};
    pthread_mutex_lock(lock);
    return hold;
}

static inline void hw_hold_end(const struct hw_hold *hold) {
    pthread_mutex_unlock(hold->lock);
    hw_own_end(&hold->own);
}

#define HW_HOLD(lock) __attribute__((cleanup(hw_hold_end), unused)) struct hw_hold hw_hold_here = hw_hold_begin(lock)

/* Between these two a thread waits, and may be cancelled if its program lets it: who calls them has pushed a handler
 * that puts right what it leaves. */
static inline void hw_own_wait(void) { pthread_setcancelstate(hw_outside.cancel, NULL); }
static inline void hw_own_waited(void) { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); }

#endif
