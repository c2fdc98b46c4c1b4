/* The ways to a function: from us to the real one, and from a program to ours. */
#ifndef HEADWAY_LOADER_H
#define HEADWAY_LOADER_H

#include <stddef.h>

struct hw_hook {
    const char *name;
    void *wrapper;
    void **real;
};

/* Every hooked function, made from hooks.def. */
extern const struct hw_hook hw_hooks[];
extern const size_t hw_hook_count;

/* The real function behind our own; `caller` is whoever called ours. NULL: there is none. */
void *hw_resolve(const char *name, void *own, void *caller);
void hw_find_loader(void);

#endif
