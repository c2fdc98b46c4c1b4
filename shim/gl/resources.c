/* The context monitor: buffers, vertex arrays and programs, as the program makes and changes them. */
#include "monitor.h"
#include "see.h"
#include "sources.h"
#include <stdlib.h>
#include <string.h>

enum {
    GL_ARRAY_BUFFER = 0x8892, GL_ELEMENT_ARRAY_BUFFER = 0x8893, GL_UNIFORM_BUFFER = 0x8A11, GL_COPY_WRITE_BUFFER = 0x8F37,
    GL_FRAGMENT_SHADER = 0x8B30, GL_VERTEX_SHADER = 0x8B31, GL_COMPUTE_SHADER = 0x91B9,
    GL_MAP_WRITE = 2, GL_MAP_PERSISTENT = 0x40, GL_READ_ONLY = 0x88B8,
};

/* In its share group; whoever asks holds the lock. */
#define SHARED HW_HOLD(&hw_monitor->shares->lock)

/* ---- buffers ------------------------------------------------------------------------------- */

static GLuint *binding(GLenum target) {
    struct hw_monitor *m = hw_monitor;
    struct hw_vertex_array *array;
    switch (target) {
    case GL_ARRAY_BUFFER: return &m->array_buffer;
    case GL_UNIFORM_BUFFER: return &m->uniform_buffer;
    case GL_COPY_WRITE_BUFFER: return &m->copy_write_buffer;
    case GL_ELEMENT_ARRAY_BUFFER: return (array = hw_monitor_array(m)) ? &array->elements : NULL;
    default: return NULL;
    }
}

static struct hw_buffer *named(GLuint name) {
    struct hw_buffer *b = name ? hw_names_make(&hw_monitor->shares->buffers, name, sizeof *b) : NULL;
    if (name && !b) hw_monitor_give_up(HW_NO_NAMES);
    return b;
}

static struct hw_buffer *bound_to(GLenum target) {
    const GLuint *name = binding(target);
    return name ? named(*name) : NULL;
}

void hw_see_glBindBuffer(GLenum target, GLuint name) {
    GLuint *at = binding(target);
    if (at) *at = name;
}

void hw_see_glBindBufferARB(GLenum target, GLuint name) { hw_see_glBindBuffer(target, name); }

void hw_see_glBindBufferRange(GLenum target, GLuint index, GLuint name, GLintptr offset, GLintptr size) {
    (void)size;
    hw_see_glBindBuffer(target, name);
    if (target != GL_UNIFORM_BUFFER || index >= HW_BLOCKS || offset < 0) return;
    hw_monitor->block[index] = name;
    hw_monitor->block_at[index] = offset;
}

void hw_see_glBindBufferBase(GLenum target, GLuint index, GLuint name) { hw_see_glBindBufferRange(target, index, name, 0, 0); }

void hw_see_glBufferData(GLenum target, GLintptr size, const void *data, GLenum usage) {
    (void)usage;
    SHARED;
    struct hw_buffer *b = bound_to(target);
    if (b && size >= 0) hw_buffer_define(b, (uint64_t)size, data);
}

void hw_see_glBufferDataARB(GLenum target, GLintptr size, const void *data, GLenum usage) {
    hw_see_glBufferData(target, size, data, usage);
}

void hw_see_glBufferSubData(GLenum target, GLintptr offset, GLintptr size, const void *data) {
    SHARED;
    struct hw_buffer *b = bound_to(target);
    if (b && offset >= 0 && size >= 0) hw_buffer_write(b, (uint64_t)offset, (uint64_t)size, data);
}

void hw_see_glBufferSubDataARB(GLenum target, GLintptr offset, GLintptr size, const void *data) {
    hw_see_glBufferSubData(target, offset, size, data);
}

/* Its data stays mapped while it is drawn with: nobody says when it changes. */
static void unreadable_if(struct hw_buffer *b, bool so) {
    if (b && so) b->unreadable = true;
}

void hw_see_glBufferStorage(GLenum target, GLintptr size, const void *data, GLbitfield flags) {
    hw_see_glBufferData(target, size, data, 0);
    SHARED;
    unreadable_if(bound_to(target), flags & GL_MAP_PERSISTENT);
}

void hw_see_glBufferStorageEXT(GLenum target, GLintptr size, const void *data, GLbitfield flags) {
    hw_see_glBufferStorage(target, size, data, flags);
}

void hw_see_glNamedBufferData(GLuint name, GLintptr size, const void *data, GLenum usage) {
    (void)usage;
    SHARED;
    struct hw_buffer *b = named(name);
    if (b && size >= 0) hw_buffer_define(b, (uint64_t)size, data);
}

void hw_see_glNamedBufferStorage(GLuint name, GLintptr size, const void *data, GLbitfield flags) {
    hw_see_glNamedBufferData(name, size, data, 0);
    SHARED;
    unreadable_if(named(name), flags & GL_MAP_PERSISTENT);
}

void hw_see_glNamedBufferSubData(GLuint name, GLintptr offset, GLintptr size, const void *data) {
    SHARED;
    struct hw_buffer *b = named(name);
    if (b && offset >= 0 && size >= 0) hw_buffer_write(b, (uint64_t)offset, (uint64_t)size, data);
}

/* What the GPU copies is not seen. */
void hw_see_glCopyBufferSubData(GLenum from, GLenum target, GLintptr at, GLintptr offset, GLintptr size) {
    (void)from, (void)at, (void)offset, (void)size;
    SHARED;
    unreadable_if(bound_to(target), true);
}

static void mapped(GLenum target, uint64_t offset, uint64_t size, bool writes, bool stays) {
    SHARED;
    struct hw_buffer *b = bound_to(target);
    if (!b || !hw_seen_result) return;
    b->mapped = writes && !stays ? (const uint8_t *)hw_seen_result : NULL;
    b->mapped_at = offset;
    b->mapped_size = size ? size : b->size;
    unreadable_if(b, stays);
}

void hw_see_glMapBuffer(GLenum target, GLenum access) { mapped(target, 0, 0, access != GL_READ_ONLY, false); }
void hw_see_glMapBufferARB(GLenum target, GLenum access) { hw_see_glMapBuffer(target, access); }
void hw_see_glMapBufferOES(GLenum target, GLenum access) { hw_see_glMapBuffer(target, access); }

void hw_see_glMapBufferRange(GLenum target, GLintptr offset, GLintptr length, GLbitfield access) {
    if (offset < 0 || length <= 0) return;
    mapped(target, (uint64_t)offset, (uint64_t)length, access & GL_MAP_WRITE, access & GL_MAP_PERSISTENT);
}

void hw_see_glMapBufferRangeEXT(GLenum target, GLintptr offset, GLintptr length, GLbitfield access) {
    hw_see_glMapBufferRange(target, offset, length, access);
}

/* Before its data goes from where the program wrote it. */
void hw_see_glUnmapBuffer(GLenum target) {
    SHARED;
    struct hw_buffer *b = bound_to(target);
    if (b && b->mapped) hw_buffer_write(b, b->mapped_at, b->mapped_size, b->mapped);
    if (b) b->mapped = NULL;
}

void hw_see_glUnmapBufferARB(GLenum target) { hw_see_glUnmapBuffer(target); }
void hw_see_glUnmapBufferOES(GLenum target) { hw_see_glUnmapBuffer(target); }

void hw_see_glDeleteBuffers(GLsizei n, const GLuint *names) {
    struct hw_monitor *m = hw_monitor;
    SHARED;
    for (GLsizei i = 0; names && i < n; i++) {
        if (m->array_buffer == names[i]) m->array_buffer = 0;
        if (m->uniform_buffer == names[i]) m->uniform_buffer = 0;
        hw_names_drop(&m->shares->buffers, names[i], hw_buffer_end);
    }
}

void hw_see_glDeleteBuffersARB(GLsizei n, const GLuint *names) { hw_see_glDeleteBuffers(n, names); }

/* ---- vertex arrays ------------------------------------------------------------------------- */

void hw_see_glBindVertexArray(GLuint name) { hw_monitor->array = name; }
void hw_see_glBindVertexArrayOES(GLuint name) { hw_monitor->array = name; }

void hw_see_glDeleteVertexArrays(GLsizei n, const GLuint *names) {
    for (GLsizei i = 0; names && i < n; i++) {
        if (!names[i]) continue;
        if (hw_monitor->array == names[i]) hw_monitor->array = 0;
        hw_names_drop(&hw_monitor->arrays, names[i], NULL);
    }
}

void hw_see_glDeleteVertexArraysOES(GLsizei n, const GLuint *names) { hw_see_glDeleteVertexArrays(n, names); }

static struct hw_attribute *attribute(GLuint index) {
    struct hw_vertex_array *array = index < HW_ATTRIBUTES ? hw_monitor_array(hw_monitor) : NULL;
    return array ? &array->attribute[index] : NULL;
}

static void enable(GLuint index, bool on) {
    struct hw_attribute *a = attribute(index);
    if (a) a->enabled = on;
}

void hw_see_glEnableVertexAttribArray(GLuint index) { enable(index, true); }
void hw_see_glDisableVertexAttribArray(GLuint index) { enable(index, false); }

void hw_see_glVertexAttribPointer(GLuint index, GLint components, GLenum type, GLboolean normalized, GLsizei stride,
                                  const void *pointer) {
    struct hw_attribute *a = attribute(index);
    if (!a || components < 1 || components > 4 || stride < 0 || !hw_component_size(type)) return;
    a->components = components;
    a->type = type;
    a->normalized = normalized;
    a->stride = stride ? stride : components * (GLsizei)hw_component_size(type);
    a->pointer = pointer;
    a->buffer = hw_monitor->array_buffer;
    a->unknown = false;
}

void hw_see_glVertexAttribDivisor(GLuint index, GLuint divisor) {
    struct hw_attribute *a = attribute(index);
    if (a) a->divided = divisor;
}

/* Formats that stand apart from buffers are not followed. */
static void format_apart(void) {
    struct hw_vertex_array *array = hw_monitor_array(hw_monitor);
    if (array) array->unknown = true;
}

void hw_see_glVertexAttribFormat(GLuint index, GLint components, GLenum type, GLboolean normalized, GLuint offset) {
    (void)index, (void)components, (void)type, (void)normalized, (void)offset;
    format_apart();
}

void hw_see_glVertexAttribBinding(GLuint index, GLuint at) {
    (void)index, (void)at;
    format_apart();
}

void hw_see_glBindVertexBuffer(GLuint at, GLuint name, GLintptr offset, GLsizei stride) {
    (void)at, (void)name, (void)offset, (void)stride;
    format_apart();
}

/* ---- shaders and programs ------------------------------------------------------------------- */

#define SEED 0xcbf29ce484222325ull
/* More than any shader has; so much is read at once. */
#define MOST_SOURCE (256 << 10)

static struct hw_program *program_named(GLuint name) { return hw_names_find(&hw_monitor->shares->programs, name); }

void hw_see_glCreateShader(GLenum type) {
    SHARED;
    GLuint name = (GLuint)hw_seen_result;
    struct hw_shader *s = name ? hw_names_make(&hw_monitor->shares->shaders, name, sizeof *s) : NULL;
    if (s) *s = (struct hw_shader){.type = type};
}

void hw_see_glDeleteShader(GLuint name) {
    SHARED;
    hw_names_drop(&hw_monitor->shares->shaders, name, NULL);
}

/* All parts in one text; NULL: too long, or not readable. The driver has read what is read here. */
static char *join(GLsizei n, const GLchar *const *text, const GLint *size, size_t *total) {
    char *whole = n > 0 && n < 4096 && text ? malloc(MOST_SOURCE) : NULL;
    *total = 0;
    for (GLsizei i = 0; whole && i < n; i++) {
        size_t length = !text[i] ? 0 : size && size[i] >= 0 ? (size_t)size[i] : strlen(text[i]);
        if (length > MOST_SOURCE - *total) {
            free(whole);
            return NULL;
        }
        if (length) memcpy(whole + *total, text[i], length);
        *total += length;
    }
    return whole;
}

void hw_see_glShaderSource(GLuint name, GLsizei n, const GLchar *const *text, const GLint *size) {
    SHARED;
    struct hw_shader *s = hw_names_find(&hw_monitor->shares->shaders, name);
    size_t total;
    if (!s) return; /* an error of the program, or a shader that was made before we were there: nothing is read */
    char *whole = join(n, text, size, &total);
    s->hash = whole ? hw_hash_source(SEED, whole, total) : 0;
    s->position.found = false;
    if (whole && s->type == GL_VERTEX_SHADER) hw_read_position(whole, total, &s->position);
    if (whole) hw_sources_keep(s->type, s->hash, whole, total);
    free(whole);
}

void hw_see_glCreateProgram(void) {
    SHARED;
    GLuint name = (GLuint)hw_seen_result;
    struct hw_program *p = name ? hw_names_make(&hw_monitor->shares->programs, name, sizeof *p) : NULL;
    if (p) memset(p, 0, sizeof *p);
}

/* A program in use lives on until another one is used. */
void hw_see_glDeleteProgram(GLuint name) {
    SHARED;
    if (name != hw_monitor->program) hw_names_drop(&hw_monitor->shares->programs, name, NULL);
}

void hw_see_glAttachShader(GLuint program, GLuint shader) {
    SHARED;
    struct hw_program *p = program_named(program);
    const struct hw_shader *s = hw_names_find(&hw_monitor->shares->shaders, shader);
    if (!p || !s) return;
    if (s->type == GL_VERTEX_SHADER) p->vertex = *s, p->vertex_name = shader;
    else if (s->type == GL_FRAGMENT_SHADER) p->fragment = *s, p->fragment_name = shader;
    else if (s->type != GL_COMPUTE_SHADER) p->makes_vertices = true;
}

void hw_see_glDetachShader(GLuint program, GLuint shader) {
    SHARED;
    struct hw_program *p = program_named(program);
    if (p && p->vertex_name == shader && !p->linked) p->vertex_name = 0, p->vertex.hash = 0;
    if (p && p->fragment_name == shader && !p->linked) p->fragment_name = 0, p->fragment.hash = 0;
}

/* Names that the driver took; a longer one is not of an attribute that is looked for. */
static bool read_name(const GLchar *from, char name[HW_IDENTIFIER]) {
    size_t size = from ? strnlen(from, HW_IDENTIFIER) : HW_IDENTIFIER;
    if (size == HW_IDENTIFIER) return false;
    memcpy(name, from, size + 1);
    return true;
}

void hw_see_glBindAttribLocation(GLuint program, GLuint index, const GLchar *name) {
    SHARED;
    struct hw_program *p = program_named(program);
    if (!p || index >= HW_ATTRIBUTES) return;
    uint32_t at = p->bounds++ % HW_BOUND_NAMES;
    p->bound[at].location = read_name(name, p->bound[at].name) ? (GLint)index : -1;
}

void hw_see_glLinkProgram(GLuint name) {
    SHARED;
    struct hw_program *p = program_named(name);
    if (!p) return;
    const struct hw_shader *vertex = hw_names_find(&hw_monitor->shares->shaders, p->vertex_name);
    const struct hw_shader *fragment = hw_names_find(&hw_monitor->shares->shaders, p->fragment_name);
    if (vertex && p->vertex_name && vertex->type == GL_VERTEX_SHADER) p->vertex = *vertex; /* its source may be newer */
    if (fragment && p->fragment_name && fragment->type == GL_FRAGMENT_SHADER) p->fragment = *fragment;
    p->hash = p->vertex.hash && p->fragment.hash ? (p->vertex.hash ^ p->fragment.hash * 0x9e3779b97f4a7c15ull) : 0;
    p->linked = true;
    if (p->hash) hw_sources_linked(hw_kind_of_draw(p->hash, 0), p->vertex.hash, p->fragment.hash);
    p->attribute = p->vertex.position.location;
    for (uint32_t i = 0; i < HW_BOUND_NAMES && i < p->bounds; i++)
        if (p->bound[i].location >= 0 && p->attribute < 0 && !strcmp(p->bound[i].name, p->vertex.position.attribute))
            p->attribute = p->bound[i].location;
    for (int i = 0; i < HW_MATRICES; i++) {
        int said = i < p->vertex.position.matrices ? p->vertex.position.matrix[i].location : -1;
        p->matrix[i].location = said;
        p->matrix[i].block = UINT32_MAX;
        p->matrix[i].binding = said > 0 ? (GLuint)said : 0;
        p->matrix[i].set = false;
    }
}

void hw_see_glProgramBinary(GLuint name, GLenum format, const void *data, GLsizei size) {
    (void)format, (void)data, (void)size;
    SHARED;
    struct hw_program *p = hw_names_make(&hw_monitor->shares->programs, name, sizeof *p);
    if (p) *p = (struct hw_program){.linked = true}; /* from no source */
}

void hw_see_glUseProgram(GLuint name) { hw_monitor->program = name; }
void hw_see_glBindProgramPipeline(GLuint name) { hw_monitor->pipeline = name; }

/* Where things are is what the program asks the driver: nobody else need ask. */
void hw_see_glGetAttribLocation(GLuint program, const GLchar *name) {
    GLint location = (GLint)hw_seen_result;
    if (location < 0) return;
    SHARED;
    struct hw_program *p = program_named(program);
    if (p && name && !strcmp(name, p->vertex.position.attribute)) p->attribute = location;
}

void hw_see_glGetUniformLocation(GLuint program, const GLchar *name) {
    GLint location = (GLint)hw_seen_result;
    if (location < 0) return;
    SHARED;
    struct hw_program *p = program_named(program);
    for (int i = 0; p && name && i < p->vertex.position.matrices; i++)
        if (!p->vertex.position.matrix[i].block[0] && !strcmp(name, p->vertex.position.matrix[i].name))
            p->matrix[i].location = location;
}

void hw_see_glGetUniformBlockIndex(GLuint program, const GLchar *name) {
    GLuint index = (GLuint)hw_seen_result;
    SHARED;
    struct hw_program *p = program_named(program);
    for (int i = 0; p && name && i < p->vertex.position.matrices; i++)
        if (!strcmp(name, p->vertex.position.matrix[i].block)) p->matrix[i].block = index;
}

void hw_see_glUniformBlockBinding(GLuint program, GLuint index, GLuint at) {
    SHARED;
    struct hw_program *p = program_named(program);
    for (int i = 0; p && i < HW_MATRICES; i++)
        if (p->matrix[i].block == index) p->matrix[i].binding = at;
}

/* Only what the driver reads, too, is read: one matrix, of a uniform that is one. */
static void set_matrix(struct hw_program *p, GLint location, GLsizei n, bool transposed, const GLfloat *value) {
    if (!p || location < 0 || n != 1 || !value) return;
    for (int i = 0; i < p->vertex.position.matrices; i++) {
        if (p->matrix[i].location != location) continue;
        p->matrix[i].set = !transposed || hw_read_program(p->matrix[i].value, value, sizeof p->matrix[i].value);
        if (!transposed) memcpy(p->matrix[i].value, value, sizeof p->matrix[i].value);
        for (int k = 0; transposed && k < 16; k++)
            if (k / 4 < k % 4) {
                float other = p->matrix[i].value[4 * (k % 4) + k / 4];
                p->matrix[i].value[4 * (k % 4) + k / 4] = p->matrix[i].value[k];
                p->matrix[i].value[k] = other;
            }
    }
}

void hw_see_glUniformMatrix4fv(GLint location, GLsizei n, GLboolean transposed, const GLfloat *value) {
    SHARED;
    set_matrix(program_named(hw_monitor->program), location, n, transposed, value);
}

void hw_see_glProgramUniformMatrix4fv(GLuint program, GLint location, GLsizei n, GLboolean transposed, const GLfloat *value) {
    SHARED;
    set_matrix(program_named(program), location, n, transposed, value);
}

void hw_see_glBeginTransformFeedback(GLenum mode) {
    (void)mode;
    hw_monitor->feeds = true;
    hw_monitor_give_up(HW_NO_FEEDBACK);
}

void hw_see_glEndTransformFeedback(void) { hw_monitor->feeds = false; }
