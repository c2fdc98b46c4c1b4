#define _GNU_SOURCE
#include "watchdog.h"
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

static HW_SHARED(struct hw_channel *) guarded;
static bool (*books)(void);

/* No lock is waited for here, and nothing is asked of the driver: whatever hangs there, this must not. Pages of such
 * channels stay mapped. */
static void *watch(void *unused) {
    (void)unused;
    bool kept = true;
    for (;;) {
        struct hw_channel *c = hw_load_acquire(&guarded);
        struct pollfd p = {.fd = hw_load(&c->fd), .events = POLLRDHUP};
        struct hw_client_page *page = hw_page_of(c);
        bool pieces = page && hw_load(&page->gated);
        int found = poll(&p, 1, !pieces ? LOOK_MS : kept ? BOOKS_MS : ACTIVE_MS);
        bool over = found > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
        if (page && (over || hw_gate_is_silent(c))) hw_store_full(&page->open, 1);
        kept = !pieces || books();
        if (found) nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
    }
    return NULL;
}

bool hw_watchdog_start(struct hw_channel *channel, bool (*keep_books)(void)) {
    if (hw_load(&guarded)) return true;
    books = keep_books;
    hw_store_release(&guarded, channel);
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
    return hw_load(&guarded);
}

void hw_watchdog_gone(void) { hw_store(&guarded, NULL); }
