/* Bounding boxes of vertices, and how many pixels their projections cover (libETP, section IV-E). Pure: no GL, no locks. */
#ifndef HEADWAY_GEOMETRY_H
#define HEADWAY_GEOMETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Around all vertices of a mesh; `known` is false while it has seen none, or one that is no number. */
struct hw_box {
    float low[3], high[3];
    bool known;
};

/* In pixels, from a lower left corner on; empty if a size is not above 0. */
struct hw_rectangle {
    int x, y, width, height;
};

/* How the vertices stand in their memory, as glVertexAttribPointer says. */
struct hw_format {
    uint64_t offset;
    uint32_t stride; /* never 0 */
    uint32_t type;   /* GL_FLOAT, ... */
    int components;
    bool normalized;
};

/* How many bytes a component takes; 0: no type that can be read. */
uint32_t hw_component_size(uint32_t type);
/* The box of `count` vertices from `first` on, as far as they stand within `size` bytes; every `step`-th is read. */
struct hw_box hw_box_of(const void *data, uint64_t size, const struct hw_format *format, uint64_t first, uint64_t count,
                        uint64_t step);
/* The smallest and largest of `count` indices; false: they do not stand within `size` bytes, or are of no known type. */
bool hw_index_range(const void *data, uint64_t size, uint32_t type, uint64_t offset, uint64_t count, uint32_t *low,
                    uint32_t *high);

/* c = a b, all in columns as GL has them; c may be a or b. */
void hw_multiply(float c[16], const float a[16], const float b[16]);
struct hw_rectangle hw_intersection(struct hw_rectangle a, struct hw_rectangle b);
uint64_t hw_rectangle_area(struct hw_rectangle r);
/* Pixels of `clip` that the box covers if `matrix` projects its eight corners into `viewport`. Corners behind the eye are
 * cut off at it. A box or a matrix that is no number covers all of `clip`. */
uint64_t hw_projected_area(const struct hw_box *box, const float matrix[16], struct hw_rectangle viewport,
                           struct hw_rectangle clip);

#endif
