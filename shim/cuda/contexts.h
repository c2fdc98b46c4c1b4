/* CUDA contexts: which GPU a stream's work goes to, and whose default stream is meant. A program with one GPU and one
 * context pays nothing for that: its streams are called as it calls them, and its only GPU is the first. */
#ifndef HEADWAY_CONTEXTS_H
#define HEADWAY_CONTEXTS_H

#include "gate.h"
#include "turn.h"

/* How many this program may have, as far as that matters: with what every launch looks at anyway. */
#define hw_contexts (hw_nears[0].contexts)
enum { HW_NOT_KNOWN, HW_ONE_CONTEXT, HW_CONTEXTS };

static inline bool hw_has_contexts(void) { return hw_load(&hw_contexts) != HW_ONE_CONTEXT; }

/* Where there may be several: this thread's work is for the GPU of this stream. Returns what that stream's lane is
 * called; `legacy` is a default stream, of whatever context is current. */
void *hw_context_lane(void *stream, void *legacy);
/* The same for what is current, for a context, or for a device: all lanes there are meant from now on. */
void hw_context_current(void);
void hw_context_named(void *context);
void hw_context_of_device(int device);
/* Whether a lane is of the context that was named last. */
bool hw_context_is_meant(void *lane);
/* The program makes another one, or asks for a primary one. */
void hw_context_made(void);
void hw_context_retained(void);
/* A context is about to go, or all of them may be others. */
void hw_contexts_forget(void);
/* A lane that is the default stream of some context. */
bool hw_is_default(const void *lane);
/* Which GPU this thread's work goes to. */
void hw_context_identify(struct hw_channel *channel);

/* For the rest of the block the context of a lane is current. */
struct hw_visit {
    bool came;
};
struct hw_visit hw_visit_begin(void *lane);
void hw_visit_end(const struct hw_visit *visit);
#define HW_VISIT(lane) __attribute__((cleanup(hw_visit_end), unused)) struct hw_visit hw_visit_here = hw_visit_begin(lane)

#endif
