/* What a group will do, as numbers. */
#include "rows.h"

static uint64_t slot_of(uint64_t kind, uint64_t mesh) {
    return ((kind ^ mesh * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull >> 32) % HW_COEFFICIENTS;
}

void hw_features_begin(struct hw_features *f, const struct hw_daemon_page *daemon) {
    f->rows = f->last = f->unfollowed = 0;
    f->cost = daemon ? hw_load(&daemon->group_cost) : 0;
    f->unknown = !f->cost;
}

/* The daemon writes the key last and takes it back first; a value of a moment before does no harm. */
static void look_up(struct hw_features *f, uint32_t row, const struct hw_daemon_page *daemon) {
    f->row[row].each = f->row[row].vertex = f->row[row].fragment = 0;
    if (!daemon) {
        f->unknown = true;
        return;
    }
    uint64_t at = slot_of(f->row[row].kind, f->row[row].mesh);
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t slot = (at + i) % HW_COEFFICIENTS;
        if (hw_load_acquire(&daemon->coefficient[slot].kind) != f->row[row].kind) continue;
        if (hw_load(&daemon->coefficient[slot].mesh) != f->row[row].mesh) continue;
        f->row[row].each = hw_load(&daemon->coefficient[slot].each);
        f->row[row].vertex = hw_load(&daemon->coefficient[slot].vertex);
        f->row[row].fragment = hw_load(&daemon->coefficient[slot].fragment);
        return;
    }
    f->unknown = true;
}

/* More than any call draws; products of so much with a coefficient do not overflow. */
#define MOST (1ull << 36)
#define MOST_EACH (1ull << 27)

static uint64_t product(uint64_t amount, uint64_t coefficient) {
    if (coefficient > MOST_EACH) coefficient = MOST_EACH;
    return (amount < MOST ? amount : MOST) * coefficient;
}

static bool is_row(const struct hw_features *f, uint32_t row, uint64_t kind, uint64_t mesh) {
    return f->row[row].kind == kind && f->row[row].mesh == mesh;
}

void hw_features_add(struct hw_features *f, const struct hw_daemon_page *daemon, uint64_t kind, uint64_t mesh,
                     uint64_t vertices, uint64_t fragments) {
    uint32_t i = f->last;
    if (i >= f->rows || !is_row(f, i, kind, mesh))
        for (i = 0; i < f->rows && !is_row(f, i, kind, mesh); i++) {}
    if (i == HW_ROWS) { /* the meshes of a program are told together when there are too many */
        f->unfollowed |= HW_NO_ROOM;
        for (i = 0; i < f->rows && f->row[i].kind != kind; i++) {}
        if (i == HW_ROWS) i = HW_ROWS - 1;
    }
    if (i == f->rows) {
        f->rows++;
        f->row[i].kind = kind;
        f->row[i].mesh = mesh;
        f->row[i].commands = f->row[i].vertices = f->row[i].fragments = 0;
        look_up(f, i, daemon);
    }
    f->last = i;
    f->row[i].commands++;
    f->row[i].vertices += vertices < MOST ? vertices : MOST;
    f->row[i].fragments += fragments < MOST ? fragments : MOST;
    uint64_t cost = f->row[i].each + product(vertices, f->row[i].vertex) + product(fragments, f->row[i].fragment);
    f->cost = f->cost + cost < f->cost ? UINT64_MAX : f->cost + cost;
}

bool hw_features_cost(const struct hw_features *f, uint64_t *cost_ns) {
    if (f->unknown || !f->rows) return false;
    *cost_ns = f->cost / 1024;
    return true;
}

void hw_features_publish(const struct hw_features *f, struct hw_client_page *page) {
    for (uint32_t i = 0; i < f->rows; i++) {
        hw_store(&page->row[i].kind, f->row[i].kind);
        hw_store(&page->row[i].mesh, f->row[i].mesh);
        hw_store(&page->row[i].commands, f->row[i].commands);
        hw_store(&page->row[i].vertices, f->row[i].vertices);
        hw_store(&page->row[i].fragments, f->row[i].fragments);
    }
    hw_store(&page->unfollowed, hw_load(&page->unfollowed) | f->unfollowed);
    hw_store(&page->rows, f->rows);
}
