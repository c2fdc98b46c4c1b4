/* Shares of the multiprocessors: launches go to a green context of the wanted size while the daemon wants one. The
 * program's own streams, events and captures keep their meaning: what goes elsewhere waits for all that its stream got
 * before it, and its stream waits for it. */
#ifndef HEADWAY_GREEN_H
#define HEADWAY_GREEN_H

#include <stdbool.h>
#include <stdint.h>

/* A launch that goes elsewhere. */
struct hw_away {
    void *stream;          /* where to, on the way there */
    void *from;            /* the program's own */
    struct shadow *shadow; /* NULL: it stays */
};

/* One launch attribute, as in CUlaunchAttribute; their values are of no interest here. */
struct hw_attribute {
    int id;
    char value[68];
};

/* A launch by `from`, which may be each thread's own stream: whether it goes to `away->stream` instead. Then
 * hw_green_return is to be told how that went. */
bool hw_green_leave(struct hw_away *away, void *from, bool own_thread, const void *kernel, uint64_t blocks,
                    const struct hw_attribute *attributes, unsigned count);
/* The stream of the program waits for what went elsewhere. False: it did not go; it is to be sent as the program sent
 * it. */
bool hw_green_return(struct hw_away *away, int result);
/* A launch that is never confined. */
void hw_green_whole(void);
/* The program asks for an attribute of a device, makes a green context, destroys a stream, takes hold of a device's
 * primary context, lets go of that, or resets that, after which nothing of it is there. */
void hw_green_asks(int attribute);
void hw_green_makes_own(void);
void hw_green_ends_stream(void *stream);
void hw_green_retains(int device);
void hw_green_lets_go(int device);
void hw_green_forgets(int device);

/* ---- whole.c ---- */

/* Whether a launch is to have every multiprocessor: its blocks may wait for each other. `count_known`: the program has
 * asked how many there are. */
bool hw_needs_whole(const void *kernel, uint64_t blocks, const struct hw_attribute *attributes, unsigned count,
                    unsigned sms, bool count_known);

#endif
