/* Objects of OpenGL that several contexts share. Whoever calls holds the lock of their share group. */
#define _GNU_SOURCE
#include "objects.h"
#include "atomics.h"
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* More objects of a kind than a program has that draws something else in every frame. */
#define MOST_NAMES (1u << 16)
/* Copies of buffers: one this large takes 2 ms to copy; all together are what a program may well spare. */
#define MOST_COPY (16ull << 20)
#define MOST_COPIES (64ull << 20)
/* Looked at where all of the vertices would be too many. */
#define SAMPLES 64

static hw_u64 copied; /* bytes, of this process */

/* ---- names --------------------------------------------------------------------------------- */

static uint32_t place_of(const struct hw_names *names, GLuint name) {
    uint32_t i = name * 0x9e3779b1u >> 7 & (names->room - 1);
    while (names->value[i] && names->key[i] != name) i = (i + 1) & (names->room - 1);
    return i;
}

void *hw_names_find(const struct hw_names *names, GLuint name) {
    return names->room ? names->value[place_of(names, name)] : NULL;
}

static bool grow(struct hw_names *names) {
    struct hw_names more = {.room = names->room ? 2 * names->room : 64, .used = names->used};
    more.key = calloc(more.room, sizeof *more.key);
    more.value = calloc(more.room, sizeof *more.value);
    if (!more.key || !more.value) {
        free(more.key);
        free(more.value);
        return false;
    }
    for (uint32_t i = 0; i < names->room; i++)
        if (names->value[i]) {
            uint32_t to = place_of(&more, names->key[i]);
            more.key[to] = names->key[i];
            more.value[to] = names->value[i];
        }
    free(names->key);
    free(names->value);
    *names = more;
    return true;
}

void *hw_names_make(struct hw_names *names, GLuint name, size_t size) {
    void *found = hw_names_find(names, name);
    if (found) return found;
    if (names->used == MOST_NAMES || (2 * names->used >= names->room && !grow(names))) return NULL;
    void *made = calloc(1, size);
    if (!made) return NULL;
    uint32_t at = place_of(names, name);
    names->key[at] = name;
    names->used++;
    return names->value[at] = made;
}

void hw_names_drop(struct hw_names *names, GLuint name, void (*end)(void *)) {
    if (!hw_names_find(names, name)) return;
    uint32_t hole = place_of(names, name), mask = names->room - 1;
    if (end) end(names->value[hole]);
    free(names->value[hole]);
    names->value[hole] = NULL;
    names->used--;
    for (uint32_t i = (hole + 1) & mask; names->value[i]; i = (i + 1) & mask) { /* those behind it move up */
        uint32_t at = place_of(names, names->key[i]);
        if (at == i) continue;
        names->key[at] = names->key[i];
        names->value[at] = names->value[i];
        names->value[i] = NULL;
    }
}

void hw_names_end(struct hw_names *names, void (*end)(void *)) {
    for (uint32_t i = 0; i < names->room; i++) {
        if (names->value[i] && end) end(names->value[i]);
        free(names->value[i]);
    }
    free(names->key);
    free(names->value);
    memset(names, 0, sizeof *names);
}

void hw_shares_end(struct hw_shares *shares) {
    hw_names_end(&shares->buffers, hw_buffer_end);
    hw_names_end(&shares->programs, NULL);
    hw_names_end(&shares->shaders, NULL);
    hw_names_end(&shares->renderbuffers, NULL);
    hw_names_end(&shares->textures, NULL);
    pthread_mutex_destroy(&shares->lock);
    free(shares);
}

/* ---- buffers ------------------------------------------------------------------------------- */

bool hw_read_program(void *to, const void *from, size_t size) {
    struct iovec local = {to, size}, remote = {(void *)from, size};
    return from && process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static void forget_copy(struct hw_buffer *b) {
    if (b->copy) hw_add(&copied, -b->size);
    free(b->copy);
    b->copy = NULL;
}

void hw_buffer_end(void *buffer) {
    struct hw_buffer *b = buffer;
    forget_copy(b);
    free(b->known);
    b->known = NULL;
}

/* Room for what the program writes; false: it is too much. */
static bool make_copy(struct hw_buffer *b) {
    if (b->copy) return true;
    if (!b->size || b->size > MOST_COPY || b->unreadable) return false;
    if (hw_add(&copied, b->size) <= MOST_COPIES && (b->copy = calloc(1, b->size))) return true;
    hw_add(&copied, -b->size);
    return false;
}

void hw_buffer_define(struct hw_buffer *b, uint64_t size, const void *data) {
    if (size != b->size) {
        forget_copy(b);
        b->rewrites = 0;
    }
    b->size = size;
    b->unreadable = false;
    b->mapped = NULL;
    b->version++;
    b->credit += size;
    if (data) hw_buffer_write(b, 0, size, data);
}

void hw_buffer_write(struct hw_buffer *b, uint64_t offset, uint64_t size, const void *data) {
    if (!size || offset > b->size || size > b->size - offset) return; /* the driver refuses that, too */
    /* What is rewritten all the time mostly stays where it was: one of eight is looked at. */
    if (b->rewrites++ > 32 && size > 4096 && b->rewrites % 8) return;
    if (!make_copy(b)) return;
    if (!hw_read_program(b->copy + offset, data, size)) {
        forget_copy(b);
        b->unreadable = true;
        return;
    }
    b->version++;
    b->credit += 2 * size;
}

/* The entry for this key; `*fresh`: it says what the key asks for. NULL: no memory. */
static void *entry(struct hw_buffer *b, uint64_t key, bool *fresh) {
    if (!b->known) b->known = calloc(HW_BOXES, sizeof *b->known);
    if (!b->known) return NULL;
    uint64_t at = (key * 0xff51afd7ed558ccdull >> 32) % HW_BOXES;
    *fresh = b->known[at].key == key && b->known[at].version == b->version;
    b->known[at].key = key;
    b->known[at].version = b->version;
    return &b->known[at];
}

static uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3ull; }

/* In full while the buffer has credit for it, else some samples: large data is not walked over again and again. */
static uint64_t step_for(struct hw_buffer *b, uint64_t count, uint64_t bytes) {
    if (count <= SAMPLES) return 1;
    if (bytes <= b->credit) {
        b->credit -= bytes;
        return 1;
    }
    return count / SAMPLES;
}

struct hw_box hw_buffer_box(struct hw_buffer *b, const struct hw_format *format, uint64_t first, uint64_t count) {
    uint64_t key = mix(mix(mix(mix(mix(1, format->offset), format->stride), format->type), first), count);
    key = mix(key, (uint64_t)format->components << 1 | format->normalized);
    bool fresh = false;
    if (!b->copy) return (struct hw_box){.known = false};
    typeof(b->known) e = entry(b, key, &fresh);
    if (!e) return (struct hw_box){.known = false};
    if (!fresh) e->box = hw_box_of(b->copy, b->size, format, first, count, step_for(b, count, count * format->stride));
    return e->box;
}

bool hw_buffer_range(struct hw_buffer *b, GLenum type, uint64_t offset, uint64_t count, uint32_t *low, uint32_t *high) {
    uint64_t key = mix(mix(mix(2, type), offset), count);
    bool fresh = false;
    if (!b->copy) return false;
    typeof(b->known) e = entry(b, key, &fresh);
    if (!e) return false;
    if (!fresh) {
        uint64_t bytes = count * hw_component_size(type), some = count;
        if (step_for(b, count, bytes) > 1) some = SAMPLES; /* its begin */
        if (!hw_index_range(b->copy, b->size, type, offset, some, &e->low, &e->high)) e->low = 1, e->high = 0;
    }
    *low = e->low;
    *high = e->high;
    return *low <= *high;
}

/* ---- memory of the program ----------------------------------------------------------------- */

struct hw_box hw_client_box(const void *pointer, const struct hw_format *format, uint64_t first, uint64_t count) {
    uint8_t found[SAMPLES][32];
    struct iovec local[SAMPLES], remote[SAMPLES];
    uint32_t bytes = hw_component_size(format->type) * (uint32_t)format->components;
    uint64_t step = count > SAMPLES ? count / SAMPLES : 1, n = 0;
    struct hw_format packed = *format;
    if (!pointer || !bytes || bytes > sizeof found[0]) return (struct hw_box){.known = false};
    for (uint64_t i = 0; i < count && n < SAMPLES; i += step, n++) {
        local[n] = (struct iovec){found[n], bytes};
        remote[n] = (struct iovec){(uint8_t *)pointer + (first + i) * format->stride, bytes};
    }
    if (!n || process_vm_readv(getpid(), local, n, remote, n, 0) != (ssize_t)(n * bytes))
        return (struct hw_box){.known = false};
    packed.offset = 0;
    packed.stride = sizeof found[0];
    return hw_box_of(found, sizeof found, &packed, 0, n, 1);
}

bool hw_client_range(const void *pointer, GLenum type, uint64_t count, uint32_t *low, uint32_t *high) {
    uint8_t found[4096];
    uint32_t bytes = hw_component_size(type);
    if (!bytes || bytes > 4) return false;
    if (count > sizeof found / bytes) count = sizeof found / bytes; /* the begin stands for the rest */
    return hw_read_program(found, pointer, count * bytes) &&
           hw_index_range(found, sizeof found, type, 0, count, low, high);
}
