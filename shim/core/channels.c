/* The channels of this program: one for each GL context, and one for all that takes turns. */
#define _GNU_SOURCE
#include "connection.h"
#include "own.h"
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hw_channel *channels;

/* A forked child must not speak on its parent's connections. */
static void in_child(void) {
    HW_OWN;
    pthread_mutex_init(&lock, NULL);
    for (struct hw_channel *c = channels; c; c = c->next) {
        if (c->turns) hw_store(&c->page, NULL); /* what its parent wrote is its parent's, whose work may wait there */
        hw_forget(c);
        hw_forget_pages(c);
        c->retry_ns = 0;
    }
}

void hw_gate_init(void) {
    if (hw_connection_init()) pthread_atfork(NULL, NULL, in_child);
}

struct hw_channel *hw_channel_take(void *context) {
    HW_HOLD(&lock);
    struct hw_channel *c = channels;
    while (c && c->context != context) c = c->next;
    if (!c) {
        for (c = channels; c && (c->context || c->users); c = c->next) {} /* one to use again */
        if (c) {
            struct hw_channel *next = c->next;
            memset(c, 0, sizeof *c);
            c->next = next;
        } else if ((c = calloc(1, sizeof *c))) {
            c->next = channels;
            channels = c;
        }
        if (c) {
            hw_store(&c->fd, -1);
            c->context = context;
        }
    }
    if (c) c->users++;
    return c;
}

void hw_channel_drop(struct hw_channel *c) {
    HW_HOLD(&lock);
    if (c->users > 0 && --c->users == 0 && !c->context) hw_forget(c);
}

void hw_channel_abandon(struct hw_channel *c) {
    HW_HOLD(&lock);
    if (c->context == (void *)pthread_self()) c->context = NULL;
    if (c->users > 0 && --c->users == 0) hw_forget(c);
    c->retry_ns = 0;
}

void hw_channel_end(void *context) {
    HW_HOLD(&lock);
    for (struct hw_channel *c = channels; c; c = c->next)
        if (c->context == context) {
            c->context = NULL;
            if (!c->users) hw_forget(c);
        }
}

/* Only pages that stay can be written by a thread that does not use the channel. */
void hw_gate_show_unknown(uint32_t count) {
    if (!hw_gate_enabled()) return;
    HW_HOLD(&lock);
    for (struct hw_channel *c = channels; c; c = c->next)
        if (c->turns && hw_page_of(c)) hw_store(&hw_page_of(c)->unknown, count);
}
