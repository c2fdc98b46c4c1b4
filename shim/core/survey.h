/* What a program was seen to find: which functions, and how. Work that it found and that is not hooked is
 * always counted; the rest is only told when `headway doctor` looks. */
#ifndef HEADWAY_SURVEY_H
#define HEADWAY_SURVEY_H

#include "atomics.h"

/* Begins to tell, if HEADWAY_LOOKUPS names a file for it. Each line of that is
 *     PID loaded - PROGRAM
 *     PID hooked WAY NAME
 *     PID passed WAY NAME VERSION     (asked for; 0: none was)
 * and a file beside it, named .calls, is a table of struct hw_calls; what passed has a + before its name there.
 * Both survive the program. */
void hw_survey_begin(void);
/* One of ours was found in the place of this function; `way`: how the program found it. */
void hw_survey_hooked(const char *name, const char *way);
/* A function that is none of ours was found: what the program is to get, which is what was found. Only while
 * calls are counted it is a jump to that. Nothing comes of it if it is no work for a GPU. */
void *hw_survey_passed(const char *name, const char *way, int version, void *found);
/* The same for everything that loaded objects are linked with. */
void hw_survey_links(void);
/* Whether a name is one that work for a GPU has, whatever its version. */
bool hw_is_work(const char *name);
/* Functions that passed, each counted once. */
uint32_t hw_survey_unknown(void);

/* `headway doctor` reads from the file of this library what was built into it. */
#define HW_TEXT(number) #number
#define HW_KNOWS(api, version) \
    __attribute__((used)) static const char hw_knows[] = "headway knows " api " " HW_TEXT(version);

struct hw_calls {
    char name[56];
    hw_u64 count;
};

/* One call more of a wrapper: nothing but a look while nobody wants to know. */
#define HW_COUNT(calls) \
    ((void)(__builtin_expect((calls) != NULL, 0) && hw_add(calls, 1)))

#endif
