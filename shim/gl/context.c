/* The context monitor: which contexts there are, and the state of each that is not of objects. */
#include "monitor.h"
#include "see.h"
#include <stdlib.h>
#include <string.h>

enum {
    GL_DEPTH_TEST = 0x0B71, GL_STENCIL_TEST = 0x0B90, GL_BLEND = 0x0BE2, GL_CULL_FACE = 0x0B44, GL_SCISSOR_TEST = 0x0C11,
    GL_RASTERIZER_DISCARD = 0x8C89, GL_TEXTURE0 = 0x84C0, GL_TEXTURE_2D = 0x0DE1, GL_RENDERBUFFER = 0x8D41,
    GL_FRAMEBUFFER = 0x8D40, GL_DRAW_FRAMEBUFFER = 0x8CA9,
};

_Thread_local struct hw_monitor *hw_monitor;
_Thread_local const struct hw_daemon_page *hw_monitor_page;
_Thread_local uintptr_t hw_seen_result;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hw_monitor *monitors;

/* ---- contexts ------------------------------------------------------------------------------ */

static struct hw_monitor *find(void *context) {
    struct hw_monitor *m = monitors;
    while (m && (m->context != context || m->ended)) m = m->next;
    return m;
}

static struct hw_shares *new_shares(void) {
    struct hw_shares *s = calloc(1, sizeof *s);
    if (s) pthread_mutex_init(&s->lock, NULL);
    return s;
}

static struct hw_monitor *make(void *context, void *shares_with) {
    struct hw_monitor *m = calloc(1, sizeof *m), *other = shares_with ? find(shares_with) : NULL;
    if (!m) return NULL;
    m->shares = other ? other->shares : new_shares();
    if (!m->shares || !hw_names_make(&m->arrays, 0, sizeof(struct hw_vertex_array))) {
        if (m->shares && !other) hw_shares_end(m->shares);
        free(m);
        return NULL;
    }
    m->shares->contexts++;
    m->context = context;
    m->next = monitors;
    return monitors = m;
}

static void free_if_unused(struct hw_monitor *m) {
    if (m->users > 0 || !m->ended) return;
    for (struct hw_monitor **at = &monitors; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    hw_names_end(&m->arrays, NULL);
    hw_names_end(&m->framebuffers, NULL);
    if (--m->shares->contexts == 0) hw_shares_end(m->shares);
    free(m);
}

void hw_monitor_made(void *context, void *shares_with) {
    HW_HOLD(&lock);
    if (context && !find(context)) make(context, shares_with);
}

void hw_monitor_bound(void *context) {
    HW_HOLD(&lock);
    struct hw_monitor *old = hw_monitor;
    hw_monitor = context ? find(context) : NULL;
    if (context && !hw_monitor) hw_monitor = make(context, NULL);
    if (hw_monitor) hw_monitor->users++;
    if (old) {
        old->users--;
        free_if_unused(old);
    }
}

void hw_monitor_ended(void *context) {
    HW_HOLD(&lock);
    struct hw_monitor *m = find(context);
    if (!m) return;
    m->ended = true;
    free_if_unused(m);
}

void hw_monitor_knows(struct hw_rectangle viewport, struct hw_rectangle scissor) {
    struct hw_monitor *m = hw_monitor;
    if (!m || m->known) return;
    m->known = true;
    m->viewport = m->surface = viewport;
    m->scissor = scissor;
}

/* A window may have another size now. Nobody needs to be asked: a program draws on all of it. */
void hw_monitor_frame(void) {
    struct hw_monitor *m = hw_monitor;
    if (!m) return;
    if (m->extent.width > 0 && m->extent.height > 0) m->surface = m->extent;
    m->extent = (struct hw_rectangle){0, 0, 0, 0};
}

void hw_monitor_give_up(uint32_t why) {
    if (!hw_monitor) return;
    hw_monitor->gave_up |= why;
    hw_monitor->features.unfollowed |= why;
}

struct hw_rectangle hw_monitor_target(const struct hw_monitor *m) {
    const struct hw_framebuffer *f = m->framebuffer ? hw_names_find(&m->framebuffers, m->framebuffer) : NULL;
    if (!m->framebuffer) return m->surface;
    if (f && f->width > 0 && f->height > 0) return (struct hw_rectangle){0, 0, f->width, f->height};
    return m->viewport;
}

struct hw_vertex_array *hw_monitor_array(struct hw_monitor *m) {
    struct hw_vertex_array *a = hw_names_make(&m->arrays, m->array, sizeof *a);
    if (!a) hw_monitor_give_up(HW_NO_NAMES);
    return a;
}

/* ---- what the program called ---------------------------------------------------------------- */

void hw_see_eglCreateContext(void *display, void *config, void *shares_with, const GLint *attributes) {
    (void)display, (void)config, (void)attributes;
    hw_monitor_made((void *)hw_seen_result, shares_with);
}

void hw_see_glXCreateContext(void *display, void *visual, void *shares_with, int direct) {
    (void)display, (void)visual, (void)direct;
    hw_monitor_made((void *)hw_seen_result, shares_with);
}

void hw_see_glXCreateNewContext(void *display, void *config, int type, void *shares_with, int direct) {
    (void)display, (void)config, (void)type, (void)direct;
    hw_monitor_made((void *)hw_seen_result, shares_with);
}

void hw_see_glXCreateContextAttribsARB(void *display, void *config, void *shares_with, int direct, const int *attributes) {
    (void)display, (void)config, (void)direct, (void)attributes;
    hw_monitor_made((void *)hw_seen_result, shares_with);
}

void hw_see_glViewport(GLint x, GLint y, GLsizei width, GLsizei height) {
    struct hw_monitor *m = hw_monitor;
    if (width < 0 || height < 0) return; /* refused, as the driver does */
    m->viewport = (struct hw_rectangle){x, y, width, height};
    if (m->framebuffer) return;
    int64_t right = (int64_t)x + width, top = (int64_t)y + height;
    if (right > INT32_MAX || top > INT32_MAX) return;
    if (right > m->extent.width) m->extent.width = (int)right;
    if (top > m->extent.height) m->extent.height = (int)top;
    if (m->extent.width > m->surface.width) m->surface.width = m->extent.width;
    if (m->extent.height > m->surface.height) m->surface.height = m->extent.height;
}

void hw_see_glScissor(GLint x, GLint y, GLsizei width, GLsizei height) {
    if (width >= 0 && height >= 0) hw_monitor->scissor = (struct hw_rectangle){x, y, width, height};
}

static void switch_on(GLenum what, bool on) {
    struct hw_monitor *m = hw_monitor;
    uint32_t bit = what == GL_BLEND          ? HW_BLENDS
                   : what == GL_DEPTH_TEST   ? HW_TESTS_DEPTH
                   : what == GL_STENCIL_TEST ? HW_TESTS_STENCIL
                   : what == GL_CULL_FACE    ? HW_CULLS
                                             : 0;
    m->state = on ? m->state | bit : m->state & ~bit;
    if (what == GL_SCISSOR_TEST) m->scissored = on;
    if (what == GL_RASTERIZER_DISCARD) m->discards = on;
}

void hw_see_glEnable(GLenum what) { switch_on(what, true); }
void hw_see_glDisable(GLenum what) { switch_on(what, false); }

void hw_see_glColorMask(GLboolean r, GLboolean g, GLboolean b, GLboolean a) { hw_monitor->masked[0] = !(r || g || b || a); }
void hw_see_glDepthMask(GLboolean on) { hw_monitor->masked[1] = !on; }
void hw_see_glStencilMask(GLuint mask) { hw_monitor->masked[2] = !(mask & 255); }

/* ---- images that are drawn on ---------------------------------------------------------------- */

void hw_see_glActiveTexture(GLenum unit) {
    if (unit - GL_TEXTURE0 < HW_TEXTURE_UNITS) hw_monitor->unit = unit - GL_TEXTURE0;
}

void hw_see_glBindTexture(GLenum target, GLuint texture) {
    if (target == GL_TEXTURE_2D) hw_monitor->texture[hw_monitor->unit] = texture;
}

static void size_image(struct hw_names *images, GLuint name, int width, int height) {
    HW_HOLD(&hw_monitor->shares->lock);
    struct hw_image *image = name && width > 0 && height > 0 ? hw_names_make(images, name, sizeof *image) : NULL;
    if (image) *image = (struct hw_image){width, height};
}

static struct hw_image image_of(struct hw_names *images, GLuint name) {
    HW_HOLD(&hw_monitor->shares->lock);
    const struct hw_image *image = hw_names_find(images, name);
    return image ? *image : (struct hw_image){0, 0};
}

static void drop(struct hw_names *names, GLsizei n, const GLuint *name, void (*end)(void *)) {
    HW_HOLD(&hw_monitor->shares->lock);
    for (GLsizei i = 0; name && i < n; i++) hw_names_drop(names, name[i], end);
}

static void size_texture(GLenum target, int width, int height) {
    if (target == GL_TEXTURE_2D)
        size_image(&hw_monitor->shares->textures, hw_monitor->texture[hw_monitor->unit], width, height);
}

void hw_see_glTexImage2D(GLenum target, GLint level, GLint inside, GLsizei width, GLsizei height, GLint border, GLenum format,
                         GLenum type, const void *data) {
    (void)inside, (void)border, (void)format, (void)type, (void)data;
    if (level == 0) size_texture(target, width, height);
}

void hw_see_glTexStorage2D(GLenum target, GLsizei levels, GLenum inside, GLsizei width, GLsizei height) {
    (void)levels, (void)inside;
    size_texture(target, width, height);
}

void hw_see_glDeleteTextures(GLsizei n, const GLuint *names) { drop(&hw_monitor->shares->textures, n, names, NULL); }

void hw_see_glBindRenderbuffer(GLenum target, GLuint name) {
    if (target == GL_RENDERBUFFER) hw_monitor->renderbuffer = name;
}

void hw_see_glRenderbufferStorage(GLenum target, GLenum inside, GLsizei width, GLsizei height) {
    (void)inside;
    if (target == GL_RENDERBUFFER) size_image(&hw_monitor->shares->renderbuffers, hw_monitor->renderbuffer, width, height);
}

void hw_see_glRenderbufferStorageMultisample(GLenum target, GLsizei samples, GLenum inside, GLsizei width, GLsizei height) {
    (void)samples;
    hw_see_glRenderbufferStorage(target, inside, width, height);
}

void hw_see_glBindFramebuffer(GLenum target, GLuint name) {
    if (target == GL_FRAMEBUFFER || target == GL_DRAW_FRAMEBUFFER) hw_monitor->framebuffer = name;
}

void hw_see_glDeleteFramebuffers(GLsizei n, const GLuint *names) {
    struct hw_monitor *m = hw_monitor;
    for (GLsizei i = 0; names && i < n; i++) {
        if (names[i] == m->framebuffer) m->framebuffer = 0;
        hw_names_drop(&m->framebuffers, names[i], NULL);
    }
}

/* The last image says the size: they are all of one, or the smallest counts. */
static void attach(GLenum target, struct hw_image image, int level) {
    struct hw_monitor *m = hw_monitor;
    if ((target != GL_FRAMEBUFFER && target != GL_DRAW_FRAMEBUFFER) || !m->framebuffer || !image.width) return;
    struct hw_framebuffer *f = hw_names_make(&m->framebuffers, m->framebuffer, sizeof *f);
    if (!f) return hw_monitor_give_up(HW_NO_NAMES);
    level = level < 0 || level > 30 ? 0 : level;
    f->width = image.width >> level ? image.width >> level : 1;
    f->height = image.height >> level ? image.height >> level : 1;
}

void hw_see_glFramebufferTexture2D(GLenum target, GLenum place, GLenum kind, GLuint texture, GLint level) {
    (void)place;
    if (kind == GL_TEXTURE_2D) attach(target, image_of(&hw_monitor->shares->textures, texture), level);
}

void hw_see_glFramebufferRenderbuffer(GLenum target, GLenum place, GLenum kind, GLuint name) {
    (void)place;
    if (kind == GL_RENDERBUFFER) attach(target, image_of(&hw_monitor->shares->renderbuffers, name), 0);
}
