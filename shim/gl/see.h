/* Declares hw_see_NAME for every hooked function NAME; those that are defined are called. */
#ifndef HEADWAY_SEE_H
#define HEADWAY_SEE_H

#include "types.h"

#ifndef HW_SEE_LINKAGE
#define HW_SEE_LINKAGE
#endif

/* What the function that is seen returned. */
extern _Thread_local uintptr_t hw_seen_result __attribute__((visibility("hidden")));

#define WORK(name, params, args, size) HW_SEE_LINKAGE void hw_see_##name params;
#define SUBMIT(ret, name, params, args) HW_SEE_LINKAGE void hw_see_##name params;
#include "hooks.def"

#endif
