/* Objects of OpenGL that several contexts share: programs, shaders, buffers, and images with their sizes. */
#ifndef HEADWAY_OBJECTS_H
#define HEADWAY_OBJECTS_H

#include "geometry.h"
#include "shader.h"
#include "types.h"
#include <pthread.h>

/* From names to what is known of the objects. */
struct hw_names {
    GLuint *key;
    void **value;
    uint32_t room, used;
};

void *hw_names_find(const struct hw_names *names, GLuint name);
/* Made of zeros if it is new; NULL: there is no room for more. */
void *hw_names_make(struct hw_names *names, GLuint name, size_t size);
void hw_names_drop(struct hw_names *names, GLuint name, void (*end)(void *));
void hw_names_end(struct hw_names *names, void (*end)(void *));

struct hw_shader {
    GLenum type;
    uint64_t hash;
    struct hw_position position; /* of a vertex shader */
};

#define HW_BOUND_NAMES 8
struct hw_program {
    struct hw_shader vertex, fragment; /* as they were attached */
    GLuint vertex_name, fragment_name;
    bool makes_vertices; /* geometry, tessellation or mesh shaders are in it */
    bool linked, compute;
    uint64_t hash;
    struct {
        char name[HW_IDENTIFIER];
        GLint location;
    } bound[HW_BOUND_NAMES]; /* by glBindAttribLocation, for the next linking */
    uint32_t bounds;
    GLint attribute; /* where the positions come in; -1: not known */
    struct {
        GLint location; /* -1: not known */
        GLuint block, binding;
        bool set;
        float value[16];
    } matrix[HW_MATRICES];
};

#define HW_BOXES 256
struct hw_buffer {
    uint64_t size;
    uint8_t *copy; /* NULL: too large, or nothing known is in it */
    bool unreadable; /* the GPU, or something that is not followed, wrote to it */
    uint64_t version, rewrites, credit; /* so many bytes may still be walked over in full */
    struct {
        uint64_t key, version;
        struct hw_box box;
        uint32_t low, high; /* of indices */
    } *known; /* HW_BOXES of them, at the place that the key says */
    /* while it is mapped for writing */
    const uint8_t *mapped;
    uint64_t mapped_at, mapped_size;
};

struct hw_image {
    int width, height;
};

/* What contexts of one share group have in common; `lock` is taken for all of it. */
struct hw_shares {
    pthread_mutex_t lock;
    int contexts;
    struct hw_names programs, shaders, buffers, renderbuffers, textures;
};

void hw_shares_end(struct hw_shares *shares);
void hw_buffer_end(void *buffer);
/* It has another size and other data now; NULL: none. */
void hw_buffer_define(struct hw_buffer *buffer, uint64_t size, const void *data);
void hw_buffer_write(struct hw_buffer *buffer, uint64_t offset, uint64_t size, const void *data);
/* Reads the program's memory without a fault if it cannot be read; false: it could not, in full. */
bool hw_read_program(void *to, const void *from, size_t size);
struct hw_box hw_buffer_box(struct hw_buffer *buffer, const struct hw_format *format, uint64_t first, uint64_t count);
/* Of indices in a buffer. */
bool hw_buffer_range(struct hw_buffer *buffer, GLenum type, uint64_t offset, uint64_t count, uint32_t *low, uint32_t *high);
/* Of vertices in the program's memory, of which some are looked at. */
struct hw_box hw_client_box(const void *pointer, const struct hw_format *format, uint64_t first, uint64_t count);
bool hw_client_range(const void *pointer, GLenum type, uint64_t count, uint32_t *low, uint32_t *high);

#endif
