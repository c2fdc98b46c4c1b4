#define _GNU_SOURCE
#include "watchdog.h"
#include "turn.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

/* How often it looks whether the daemon is alive; that one ended it learns at once. */
#define LOOK_MS 50
/* How often books are kept, and how often it looks whether the program still does that itself: each look takes the CPU
 * from somebody, and what it looks at from the program's caches. */
#define BOOKS_MS 2
#define ACTIVE_MS 10
#define STACK 65536

static HW_SHARED(struct hw_channel *) guarded[HW_DEVICES];
static bool (*books)(void);
static hw_int runs; /* the thread, or it is being made */

/* Whether nobody needs to look at this GPU's pieces for a while: there are none, or books of them were kept. */
static bool guard(uint32_t device, const struct pollfd *p) {
    struct hw_channel *c = hw_load_acquire(&guarded[device]);
    struct hw_client_page *page = c ? hw_page_of(c) : NULL;
    if (!page) return true;
    bool over = p->revents & (POLLRDHUP | POLLHUP | POLLERR);
    if (over || hw_gate_is_silent(c)) hw_store_full(&page->open, 1);
    if (!hw_load(&page->gated)) return true;
    hw_here.device = device;
    return books();
}

static bool has_pieces(struct hw_channel *c) {
    struct hw_client_page *page = c ? hw_page_of(c) : NULL;
    return page && hw_load(&page->gated);
}

/* No lock is waited for here, and nothing is asked of the driver: whatever hangs there, this must not. Pages of such
 * channels stay mapped. */
static void *watch(void *unused) {
    (void)unused;
    bool kept = true;
    for (;;) {
        struct pollfd p[HW_DEVICES];
        bool pieces = false;
        for (uint32_t i = 0; i < HW_DEVICES; i++) {
            struct hw_channel *c = hw_load_acquire(&guarded[i]);
            p[i] = (struct pollfd){.fd = c ? hw_load(&c->fd) : -1, .events = POLLRDHUP};
            pieces |= has_pieces(c);
        }
        int found = poll(p, HW_DEVICES, !pieces ? LOOK_MS : kept ? BOOKS_MS : ACTIVE_MS);
        kept = true;
        for (uint32_t i = 0; i < HW_DEVICES; i++) kept &= guard(i, &p[i]);
        if (found) nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
    }
    return NULL;
}

bool hw_watchdog_start(struct hw_channel *channel, bool (*keep_books)(void)) {
    if (hw_load(&guarded[hw_here.device])) return true;
    books = keep_books;
    hw_store_release(&guarded[hw_here.device], channel);
    if (hw_exchange_full(&runs, true)) return true;
    pthread_t thread;
    pthread_attr_t how;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program's own threads */
    pthread_attr_init(&how);
    pthread_attr_setstacksize(&how, STACK);
    pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &how, watch, NULL)) hw_watchdog_gone();
    else pthread_setname_np(thread, "headway");
    pthread_attr_destroy(&how);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return hw_load(&guarded[hw_here.device]);
}

void hw_watchdog_gone(void) {
    for (uint32_t i = 0; i < HW_DEVICES; i++) hw_store(&guarded[i], NULL);
    hw_store(&runs, false);
}
