/* The context monitor: a local copy of what the OpenGL state says of costs (libETP, section IV-B). The interposer calls
 * `hw_see_NAME`, where there is one, after each hooked function NAME that the program called with its context current.
 * The monitor calls no function of OpenGL, waits for nothing and changes nothing that the program can see. */
#ifndef HEADWAY_MONITOR_H
#define HEADWAY_MONITOR_H

#include "rows.h"
#include "objects.h"
#include "own.h"

#define HW_ATTRIBUTES 16
#define HW_TEXTURE_UNITS 32
#define HW_BLOCKS 16

struct hw_attribute {
    bool enabled, normalized, divided, unknown;
    GLint components;
    GLenum type;
    GLsizei stride;
    const void *pointer;
    GLuint buffer;
};

struct hw_vertex_array {
    struct hw_attribute attribute[HW_ATTRIBUTES];
    GLuint elements;
    bool unknown; /* set up by functions that are not followed */
};

struct hw_framebuffer {
    int width, height; /* 0: not known */
};

struct hw_monitor {
    void *context;
    struct hw_monitor *next;
    struct hw_shares *shares;
    int users; /* threads it is current on */
    bool ended, known;
    /* of this context alone */
    struct hw_names arrays, framebuffers;
    GLuint array, array_buffer, uniform_buffer, copy_write_buffer, renderbuffer, framebuffer, program, unit;
    GLuint texture[HW_TEXTURE_UNITS], block[HW_BLOCKS];
    GLintptr block_at[HW_BLOCKS];
    struct hw_rectangle viewport, scissor, surface, extent; /* extent: of this frame's viewports on the surface */
    uint32_t state; /* of enum hw_state */
    bool scissored, discards, feeds, pipeline;
    bool handled; /* what was called last is among the features */
    GLboolean masked[3]; /* colour, depth and stencil are not written to */
    uint32_t gave_up; /* of enum hw_unfollowed: for as long as the context lives */
    struct hw_features features;
};

/* Of the context that is current on this thread; NULL: none that is followed. */
extern _Thread_local struct hw_monitor *hw_monitor __attribute__((visibility("hidden")));
/* Where the daemon publishes its coefficients for the present channel; NULL: there is none. */
extern _Thread_local const struct hw_daemon_page *hw_monitor_page __attribute__((visibility("hidden")));

/* A context was made that shares objects with another one, or with none. */
void hw_monitor_made(void *context, void *shares_with);
/* A context is current on this thread from now on; NULL: none. With its first viewport, the size of its surface. */
void hw_monitor_bound(void *context);
void hw_monitor_knows(struct hw_rectangle viewport, struct hw_rectangle scissor);
void hw_monitor_ended(void *context);
/* The program shows a frame. */
void hw_monitor_frame(void);
/* A method that is no draw and no clear, or one that cannot be followed. */
void hw_monitor_other(uint32_t method, uint64_t size);
void hw_monitor_give_up(uint32_t why);
/* All of what may be drawn on. */
struct hw_rectangle hw_monitor_target(const struct hw_monitor *m);
struct hw_vertex_array *hw_monitor_array(struct hw_monitor *m);

#endif
