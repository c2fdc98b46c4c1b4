/* The ways to a function: from us to the real one, and from a program to ours. */
#ifndef HEADWAY_LOADER_H
#define HEADWAY_LOADER_H

#include "atomics.h"
#include <stddef.h>

struct hw_hook {
    const char *name;
    void *wrapper;
    void **real;
    hw_u64 **calls; /* NULL behind it: they are not counted (survey.h) */
};

/* Every hooked function of an API, made from its list. */
extern const struct hw_hook hw_hooks[], hw_cuda_hooks[], hw_opencl_hooks[];
extern const size_t hw_hook_count, hw_cuda_hook_count, hw_opencl_hook_count;

/* The real function behind our own; `caller` is whoever called ours. NULL: there is none. */
void *hw_resolve(const char *name, void *own, void *caller);
/* The same, when the program called ours without having looked it up: it is linked with it. */
void *hw_resolve_linked(const char *name, void *own, void *caller);
const struct hw_hook *hw_find_hook(const char *name);
void hw_find_loader(void);
/* A function of this library by name, wherever it was loaded; NULL: it has none. */
void *hw_find_in(const char *library, const char *name);
/* Whether it is there, wherever it was loaded. */
bool hw_is_loaded(const char *library);
/* A library of a GPU's API, by its name. */
bool hw_is_api(const char *library);
/* Whether loading this library would bring one to such a library; `caller` is whoever loads it. */
bool hw_reaches_api(const char *library, void *caller);
/* A function of the library that another function is in. */
void *hw_find_beside(void *function, const char *name);

#endif
