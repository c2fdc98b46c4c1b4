/* Which X display a swap goes to, and waiting until its server has answered.
 *
 * Only what Xlib itself made is taken for an X display: a program may give EGL anything else. A display
 * that nobody showed us is not waited for. */
#include "server.h"
#include "loader.h"
#include "own.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#define DISPLAYS 16

struct cookie { /* of XCB: what was asked */
    unsigned sequence;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *opened[DISPLAYS];
static struct {
    void *egl, *x;
} made[DISPLAYS];
static void *xlib; /* an address in it */
static struct {
    bool looked;
    void *(*connection)(void *);
    struct cookie (*ask)(void *);
    void *(*answer)(void *, struct cookie, void **);
    int (*sync)(void *, int);
} calls;

/* Another thread may have held it when the program forked. */
static void in_child(void) { pthread_mutex_init(&lock, NULL); }

__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, in_child); }

static int find(const void *x) {
    for (int i = 0; i < DISPLAYS; i++)
        if (opened[i] == x) return i;
    return -1;
}

void hw_display_opened(void *x, void *opener) {
    if (!x) return;
    HW_HOLD(&lock);
    xlib = opener;
    int place = find(x) < 0 ? find(NULL) : -1;
    if (place >= 0) opened[place] = x;
}

void hw_display_closed(void *x) {
    HW_HOLD(&lock);
    int place = x ? find(x) : -1;
    if (place >= 0) opened[place] = NULL;
}

void hw_display_made(void *egl, void *x) {
    HW_HOLD(&lock);
    int place = 0;
    while (place < DISPLAYS && made[place].egl && made[place].egl != egl) place++;
    if (egl && place < DISPLAYS) {
        made[place].egl = egl;
        made[place].x = x;
    }
}

static void look_up_calls(void) {
    calls.looked = true;
    calls.connection = (void *(*)(void *))hw_resolve("XGetXCBConnection", NULL, xlib);
    calls.ask = (struct cookie(*)(void *))hw_resolve("xcb_get_input_focus", NULL, xlib);
    calls.answer =
        (void *(*)(void *, struct cookie, void **))hw_resolve("xcb_get_input_focus_reply", NULL, xlib);
    calls.sync = (int (*)(void *, int))hw_resolve("XSync", NULL, xlib);
}

static bool is_known(void **display) {
    HW_HOLD(&lock);
    for (int i = 0; i < DISPLAYS; i++)
        if (made[i].egl == *display) *display = made[i].x;
    bool known = *display && find(*display) >= 0;
    if (known && !calls.looked) look_up_calls();
    return known;
}

/* By XCB where the program has it, as its driver does: then it matters neither on which thread this
 * is, nor whether the server has died, which Xlib would end the program for. */
void hw_round_trip(void *display) {
    HW_OWN;
    bool known = is_known(&display);
    if (known && calls.connection && calls.ask && calls.answer) {
        void *connection = calls.connection(display);
        free(calls.answer(connection, calls.ask(connection), NULL));
    } else if (known && calls.sync)
        calls.sync(display, 0);
}
