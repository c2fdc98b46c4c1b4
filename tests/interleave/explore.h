/* Runs two or three threads in every order of their accesses to words that more than one of them uses. */
#ifndef HEADWAY_INTERLEAVE_EXPLORE_H
#define HEADWAY_INTERLEAVE_EXPLORE_H

#include "model.h"
#include <stdbool.h>

struct story {
    const char *name;
    void (*before)(void); /* alone, and once */
    void (*threads[3])(void);
    void (*after)(void); /* alone, after each order */
    bool delays; /* stores that are not `full` come to memory later, and out of order as far as they may */
};

/* What must hold; else the order is printed, and the program ends with 1. */
void expect(bool holds, const char *what);
/* How many orders there were. */
unsigned long explore(const struct story *story);

#endif
