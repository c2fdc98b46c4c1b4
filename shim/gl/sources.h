/* The shaders' sources of a program whose person wants it calibrated: `headway calibrate gl -- PROGRAM`. */
#ifndef HEADWAY_SOURCES_H
#define HEADWAY_SOURCES_H

#include <stddef.h>
#include <stdint.h>

/* One of a shader, kept in the folder that HEADWAY_SHADERS names, if it names one. */
void hw_sources_keep(unsigned type, uint64_t hash, const char *text, size_t size);
/* Which two make up a program. */
void hw_sources_linked(uint64_t program, uint64_t vertex, uint64_t fragment);

#endif
