/* The context monitor: what clears and draws will cost the GPU, as features of their group (libETP, sections IV-D, IV-E). */
#include "monitor.h"
#include "see.h"
#include <string.h>

enum {
    GL_COLOR = 0x1800, GL_DEPTH = 0x1801, GL_STENCIL = 0x1802, GL_DEPTH_STENCIL = 0x84F9,
    GL_COLOR_BIT = 0x4000, GL_DEPTH_BIT = 0x100, GL_STENCIL_BIT = 0x400,
    GL_TRIANGLES = 4, GL_PATCHES = 14, GL_LINES_ADJACENCY = 10,
};

static struct hw_rectangle drawn_on(const struct hw_monitor *m) {
    struct hw_rectangle target = hw_monitor_target(m);
    return m->scissored ? hw_intersection(target, m->scissor) : target;
}

static void add(struct hw_monitor *m, uint64_t kind, uint64_t mesh, uint64_t vertices, uint64_t fragments) {
    hw_features_add(&m->features, hw_monitor_page, kind, mesh, vertices, fragments);
    m->features.unfollowed |= m->gave_up;
}

void hw_monitor_other(uint32_t method, uint64_t size) {
    struct hw_monitor *m = hw_monitor;
    if (m) add(m, hw_kind_of_method(method), 0, size, 0);
}

/* ---- clears -------------------------------------------------------------------------------- */

/* Bit 0: colour, 1: depth, 2: stencil; what is not written to is not cleared. */
static void cleared(uint32_t mask) {
    struct hw_monitor *m = hw_monitor;
    m->handled = true;
    for (int i = 0; i < 3; i++)
        if (m->masked[i]) mask &= ~(1u << i);
    uint64_t pixels = hw_rectangle_area(drawn_on(m));
    bool part = pixels < hw_rectangle_area(hw_monitor_target(m));
    if (mask && !m->discards) add(m, hw_kind_of_clear(mask, part), 0, 0, pixels);
}

void hw_see_glClear(GLbitfield mask) {
    hw_monitor->handled = true;
    if (mask & ~(GLbitfield)(GL_COLOR_BIT | GL_DEPTH_BIT | GL_STENCIL_BIT | 0x200 /* accumulation */)) return; /* refused */
    cleared((mask & GL_COLOR_BIT ? 1 : 0) | (mask & GL_DEPTH_BIT ? 2 : 0) | (mask & GL_STENCIL_BIT ? 4 : 0));
}

static void cleared_buffer(GLenum buffer) {
    cleared(buffer == GL_COLOR           ? 1
            : buffer == GL_DEPTH         ? 2
            : buffer == GL_STENCIL       ? 4
            : buffer == GL_DEPTH_STENCIL ? 6
                                         : 0);
}

void hw_see_glClearBufferfv(GLenum buffer, GLint place, const GLfloat *value) {
    (void)place, (void)value;
    cleared_buffer(buffer);
}

void hw_see_glClearBufferiv(GLenum buffer, GLint place, const GLint *value) {
    (void)place, (void)value;
    cleared_buffer(buffer);
}

void hw_see_glClearBufferuiv(GLenum buffer, GLint place, const GLuint *value) {
    (void)place, (void)value;
    cleared_buffer(buffer);
}

void hw_see_glClearBufferfi(GLenum buffer, GLint place, GLfloat depth, GLint stencil) {
    (void)place, (void)depth, (void)stencil;
    cleared_buffer(buffer);
}

/* ---- draws --------------------------------------------------------------------------------- */

struct draw {
    GLenum mode;
    uint64_t count, copies;
    int64_t first; /* of arrays; of elements what is added to each index */
    bool indexed;
    GLenum type;
    const void *indices;
};

/* The product of the matrices in front of the position; false: one of them is not known. */
static bool projection(struct hw_monitor *m, const struct hw_program *p, float matrix[16]) {
    for (int i = 0; i < 16; i++) matrix[i] = i % 5 == 0;
    for (int i = 0; i < p->vertex.position.matrices; i++) {
        float value[16];
        if (!p->vertex.position.matrix[i].block[0]) {
            if (!p->matrix[i].set) return false;
            memcpy(value, p->matrix[i].value, sizeof value);
        } else {
            uint32_t at = p->matrix[i].binding;
            const struct hw_buffer *b = at < HW_BLOCKS ? hw_names_find(&m->shares->buffers, m->block[at]) : NULL;
            uint64_t offset = at < HW_BLOCKS ? (uint64_t)m->block_at[at] + p->vertex.position.matrix[i].offset : 0;
            if (!b || !b->copy || offset > b->size || b->size - offset < sizeof value) return false;
            memcpy(value, b->copy + offset, sizeof value);
        }
        hw_multiply(matrix, matrix, value);
    }
    return true;
}

/* The vertices that a draw uses, by its indices or without them. */
static bool vertices_of(struct hw_monitor *m, const struct hw_vertex_array *array, const struct draw *d, uint64_t *first,
                        uint64_t *count) {
    uint32_t low, high;
    *first = d->first < 0 ? 0 : (uint64_t)d->first;
    *count = d->count;
    if (!d->indexed) return true;
    struct hw_buffer *b = array->elements ? hw_names_find(&m->shares->buffers, array->elements) : NULL;
    if (array->elements ? !b || !hw_buffer_range(b, d->type, (uint64_t)(uintptr_t)d->indices, d->count, &low, &high)
                        : !hw_client_range(d->indices, d->type, d->count, &low, &high))
        return false;
    if (d->first < -(int64_t)low) return false;
    *first = (uint64_t)((int64_t)low + d->first);
    *count = (uint64_t)high - low + 1;
    return true;
}

/* Around what a draw's vertices are before the vertex shader; `mesh` identifies where they come from. */
static struct hw_box box_of(struct hw_monitor *m, const struct hw_program *p, const struct draw *d, uint64_t *mesh) {
    struct hw_box box = {.known = false};
    struct hw_vertex_array *array = hw_monitor_array(m);
    uint64_t first, count;
    *mesh = 0;
    if (!array || array->unknown) return box;
    const struct hw_attribute *a = &array->attribute[p->attribute >= 0 && p->attribute < HW_ATTRIBUTES ? p->attribute : 0];
    struct hw_buffer *b = a->buffer ? hw_names_find(&m->shares->buffers, a->buffer) : NULL;
    /* By what is the same in the next run, too: the order of names, not addresses. */
    *mesh = (uint64_t)a->buffer << 40 | (a->buffer ? (uint64_t)(uintptr_t)a->pointer & 0xffffff : 0) << 8 | d->mode % 256;
    if (!a->enabled || a->unknown || a->divided || !a->stride) return box;
    struct hw_format format = {0, (uint32_t)a->stride, a->type, a->components, a->normalized};
    if (!vertices_of(m, array, d, &first, &count)) return box;
    if (!a->buffer) return hw_client_box(a->pointer, &format, first, count);
    format.offset = (uint64_t)(uintptr_t)a->pointer;
    return b && !b->unreadable ? hw_buffer_box(b, &format, first, count) : box;
}

static void drawn(const struct draw *d) {
    struct hw_monitor *m = hw_monitor;
    if (d->mode > GL_PATCHES || !d->count || !d->copies || d->count > INT32_MAX) return; /* nothing, or refused */
    HW_HOLD(&m->shares->lock);
    const struct hw_program *p = m->program ? hw_names_find(&m->shares->programs, m->program) : NULL;
    uint32_t state = m->state | (d->copies > 1 ? HW_INSTANCED : 0) | (m->framebuffer ? HW_OFFSCREEN : 0);
    struct hw_rectangle clip = hw_intersection(drawn_on(m), m->viewport);
    uint64_t vertices = d->count * d->copies, area = hw_rectangle_area(clip), fragments = area, mesh = 0, why = 0;
    float matrix[16];
    if (d->mode < GL_TRIANGLES || (d->mode >= GL_LINES_ADJACENCY && d->mode < GL_LINES_ADJACENCY + 2)) state |= HW_LINES;
    if (!p || !p->linked || !p->hash || m->pipeline) why = HW_NO_PROGRAM;
    else if (p->makes_vertices) why = HW_NO_GEOMETRY;
    else {
        struct hw_box box = box_of(m, p, d, &mesh);
        if (!box.known) why = HW_NO_VERTICES;
        else if (!p->vertex.position.found || !projection(m, p, matrix)) why = HW_NO_POSITION;
        else fragments = hw_projected_area(&box, matrix, m->viewport, clip);
    }
    if (why) {
        state |= HW_UNPROJECTED;
        m->features.unfollowed |= (uint32_t)why;
    }
    if (m->discards) fragments = 0;
    if (fragments && d->copies > 1) fragments = d->copies > UINT64_MAX / fragments ? UINT64_MAX : fragments * d->copies;
    if (state & HW_LINES && fragments > vertices * 64) fragments = vertices * 64; /* lines of so many pixels are long */
    add(m, hw_kind_of_draw(p ? p->hash : 0, state), mesh, vertices, fragments);
}

/* Counts below 0 are refused by the driver. */
static void arrays(GLenum mode, GLint first, GLsizei count, GLsizei copies) {
    hw_monitor->handled = true;
    if (first < 0 || count < 0 || copies < 0) return;
    drawn(&(struct draw){.mode = mode, .first = first, .count = (uint64_t)count, .copies = (uint64_t)copies});
}

static void elements(GLenum mode, GLsizei count, GLenum type, const void *indices, GLsizei copies, GLint base) {
    hw_monitor->handled = true;
    bool known = type == 0x1401 || type == 0x1403 || type == 0x1405; /* bytes, shorts, ints; others are refused */
    if (count < 0 || copies < 0 || !known) return;
    drawn(&(struct draw){.mode = mode, .first = base, .count = (uint64_t)count, .copies = (uint64_t)copies, .indexed = true,
                         .type = type, .indices = indices});
}

#define ARRAYS(name, copies, params) \
    void hw_see_##name params { arrays(mode, first, count, copies); }
#define ELEMENTS(name, copies, base, params) \
    void hw_see_##name params { elements(mode, count, type, indices, copies, base); }
#define RANGE(name, base, params) \
    void hw_see_##name params { \
        (void)start, (void)end; \
        elements(mode, count, type, indices, 1, base); \
    }

ARRAYS(glDrawArrays, 1, (GLenum mode, GLint first, GLsizei count))
ARRAYS(glDrawArraysEXT, 1, (GLenum mode, GLint first, GLsizei count))
#define COPIES (GLenum mode, GLint first, GLsizei count, GLsizei copies)
ARRAYS(glDrawArraysInstanced, copies, COPIES)
ARRAYS(glDrawArraysInstancedARB, copies, COPIES)
ARRAYS(glDrawArraysInstancedEXT, copies, COPIES)
ARRAYS(glDrawArraysInstancedANGLE, copies, COPIES)
ARRAYS(glDrawArraysInstancedNV, copies, COPIES)
ELEMENTS(glDrawElements, 1, 0, (GLenum mode, GLsizei count, GLenum type, const void *indices))
#undef COPIES
#define COPIES (GLenum mode, GLsizei count, GLenum type, const void *indices, GLsizei copies)
ELEMENTS(glDrawElementsInstanced, copies, 0, COPIES)
ELEMENTS(glDrawElementsInstancedARB, copies, 0, COPIES)
ELEMENTS(glDrawElementsInstancedEXT, copies, 0, COPIES)
ELEMENTS(glDrawElementsInstancedANGLE, copies, 0, COPIES)
ELEMENTS(glDrawElementsInstancedNV, copies, 0, COPIES)
#define BASE (GLenum mode, GLsizei count, GLenum type, const void *indices, GLint base)
ELEMENTS(glDrawElementsBaseVertex, 1, base, BASE)
ELEMENTS(glDrawElementsBaseVertexEXT, 1, base, BASE)
ELEMENTS(glDrawElementsBaseVertexOES, 1, base, BASE)
#define BOTH (GLenum mode, GLsizei count, GLenum type, const void *indices, GLsizei copies, GLint base)
ELEMENTS(glDrawElementsInstancedBaseVertex, copies, base, BOTH)
ELEMENTS(glDrawElementsInstancedBaseVertexEXT, copies, base, BOTH)
ELEMENTS(glDrawElementsInstancedBaseVertexOES, copies, base, BOTH)
RANGE(glDrawRangeElements, 0, (GLenum mode, GLuint start, GLuint end, GLsizei count, GLenum type, const void *indices))
RANGE(glDrawRangeElementsEXT, 0, (GLenum mode, GLuint start, GLuint end, GLsizei count, GLenum type, const void *indices))

/* What cannot be followed counts as a method that was used, and the daemon is told. */
void hw_see_glCallList(GLuint list) {
    (void)list;
    hw_monitor_give_up(HW_NO_LISTS);
}

void hw_see_glCallLists(GLsizei n, GLenum type, const void *lists) {
    (void)n, (void)type, (void)lists;
    hw_monitor_give_up(HW_NO_LISTS);
}

void hw_see_glEnd(void) { hw_monitor_give_up(HW_NO_LISTS); }

void hw_see_glDrawArraysIndirect(GLenum mode, const void *indirect) {
    (void)mode, (void)indirect;
    hw_monitor_give_up(HW_NO_INDIRECT);
}

void hw_see_glDrawElementsIndirect(GLenum mode, GLenum type, const void *indirect) {
    (void)mode, (void)type, (void)indirect;
    hw_monitor_give_up(HW_NO_INDIRECT);
}
