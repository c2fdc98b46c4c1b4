/* What a vertex shader does to positions, read from its source. Pure: no GL, no locks. */
#ifndef HEADWAY_SHADER_H
#define HEADWAY_SHADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HW_MATRICES 4
#define HW_IDENTIFIER 64

/* gl_Position is the product of these matrices, in this order, and of an attribute. */
struct hw_position {
    bool found; /* else gl_Position is computed in a way that is not understood */
    bool displaced; /* the vertices are moved somewhat before: a local variable is changed, or set more than once */
    char attribute[HW_IDENTIFIER];
    int location; /* of the attribute, if the source says; else -1 */
    int matrices;
    struct {
        char name[HW_IDENTIFIER];
        char block[HW_IDENTIFIER]; /* the uniform block it stands in; empty: it stands in none */
        uint32_t offset;           /* in the block, by std140 */
        int location;              /* of the uniform, or the block's binding, if the source says; else -1 */
    } matrix[HW_MATRICES];
};

/* Reads `gl_Position = A * B * vec4(attribute, 1.0);` with local variables in between: the form of almost all vertex
 * shaders (libETP, section V). */
void hw_read_position(const char *source, size_t size, struct hw_position *position);
/* Whether two programs' sources are the same: FNV-1a over bytes. */
uint64_t hw_hash_source(uint64_t hash, const char *source, size_t size);

#endif
