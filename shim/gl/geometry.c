/* Bounding boxes of vertices, and how many pixels their projections cover. */
#include "geometry.h"
#include <math.h>
#include <string.h>

enum {
    GL_BYTE = 0x1400, GL_UNSIGNED_BYTE, GL_SHORT, GL_UNSIGNED_SHORT, GL_INT, GL_UNSIGNED_INT, GL_FLOAT,
    GL_DOUBLE = 0x140A, GL_HALF_FLOAT = 0x140B, GL_FIXED = 0x140C, GL_HALF_FLOAT_OES = 0x8D61,
};

uint32_t hw_component_size(uint32_t type) {
    switch (type) {
    case GL_BYTE: case GL_UNSIGNED_BYTE: return 1;
    case GL_SHORT: case GL_UNSIGNED_SHORT: case GL_HALF_FLOAT: case GL_HALF_FLOAT_OES: return 2;
    case GL_INT: case GL_UNSIGNED_INT: case GL_FLOAT: case GL_FIXED: return 4;
    case GL_DOUBLE: return 8;
    default: return 0;
    }
}

static float half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent   ? ldexpf((float)(fraction + 1024), exponent - 25)
                               : ldexpf((float)fraction, -24);
    return bits & 0x8000 ? -value : value;
}

/* One component as the vertex shader gets it. Memory of programs is not aligned. */
static float component(const uint8_t *at, uint32_t type, bool normalized) {
    union { int8_t i8; uint8_t u8; int16_t i16; uint16_t u16; int32_t i32; uint32_t u32; float f; double d; } v;
    memcpy(&v, at, hw_component_size(type));
    switch (type) {
    case GL_BYTE: return normalized ? fmaxf((float)v.i8 / 127.0f, -1.0f) : (float)v.i8;
    case GL_UNSIGNED_BYTE: return normalized ? (float)v.u8 / 255.0f : (float)v.u8;
    case GL_SHORT: return normalized ? fmaxf((float)v.i16 / 32767.0f, -1.0f) : (float)v.i16;
    case GL_UNSIGNED_SHORT: return normalized ? (float)v.u16 / 65535.0f : (float)v.u16;
    case GL_HALF_FLOAT: case GL_HALF_FLOAT_OES: return half(v.u16);
    case GL_INT: return normalized ? fmaxf((float)v.i32 / 2147483647.0f, -1.0f) : (float)v.i32;
    case GL_UNSIGNED_INT: return normalized ? (float)v.u32 / 4294967295.0f : (float)v.u32;
    case GL_FIXED: return (float)v.i32 / 65536.0f;
    case GL_DOUBLE: return (float)v.d;
    default: return v.f;
    }
}

struct hw_box hw_box_of(const void *data, uint64_t size, const struct hw_format *format, uint64_t first, uint64_t count,
                        uint64_t step) {
    struct hw_box box = {.known = false};
    uint32_t bytes = hw_component_size(format->type);
    int components = format->components < 3 ? format->components : 3;
    if (!data || !bytes || components < 1 || !format->stride || format->offset > size || first > size) return box;
    uint64_t vertex = (uint64_t)bytes * (uint64_t)components;
    for (uint64_t n = 0; n < count; n += step ? step : 1) {
        uint64_t at = format->offset + (first + n) * format->stride; /* below 2^33 * 2^32 */
        if (at > size || size - at < vertex) break;
        float point[3] = {0, 0, 0};
        for (int i = 0; i < components; i++) {
            point[i] = component((const uint8_t *)data + at + (uint64_t)i * bytes, format->type, format->normalized);
            if (!isfinite(point[i])) return (struct hw_box){.known = false};
        }
        for (int i = 0; i < 3; i++) {
            if (!box.known || point[i] < box.low[i]) box.low[i] = point[i];
            if (!box.known || point[i] > box.high[i]) box.high[i] = point[i];
        }
        box.known = true;
    }
    return box;
}

bool hw_index_range(const void *data, uint64_t size, uint32_t type, uint64_t offset, uint64_t count, uint32_t *low,
                    uint32_t *high) {
    uint32_t bytes = type == GL_UNSIGNED_BYTE ? 1 : type == GL_UNSIGNED_SHORT ? 2 : type == GL_UNSIGNED_INT ? 4 : 0;
    if (!data || !bytes || !count || offset > size || count > (size - offset) / bytes) return false;
    uint32_t restart = bytes == 4 ? UINT32_MAX : (1u << 8 * bytes) - 1; /* primitive restart: no vertex */
    const uint8_t *at = (const uint8_t *)data + offset;
    *low = UINT32_MAX;
    *high = 0;
    for (uint64_t i = 0; i < count; i++, at += bytes) {
        uint32_t index = 0;
        memcpy(&index, at, bytes); /* little-endian, as the protocol is */
        if (index == restart) continue;
        if (index < *low) *low = index;
        if (index > *high) *high = index;
    }
    return *low <= *high;
}

void hw_multiply(float c[16], const float a[16], const float b[16]) {
    float out[16];
    for (int column = 0; column < 4; column++)
        for (int row = 0; row < 4; row++) {
            float sum = 0;
            for (int i = 0; i < 4; i++) sum += a[4 * i + row] * b[4 * column + i];
            out[4 * column + row] = sum;
        }
    memcpy(c, out, sizeof out);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

struct hw_rectangle hw_intersection(struct hw_rectangle a, struct hw_rectangle b) {
    int64_t left = most(a.x, b.x), right = least((int64_t)a.x + a.width, (int64_t)b.x + b.width);
    int64_t low = most(a.y, b.y), high = least((int64_t)a.y + a.height, (int64_t)b.y + b.height);
    if (a.width <= 0 || a.height <= 0 || b.width <= 0 || b.height <= 0 || right <= left || high <= low)
        return (struct hw_rectangle){0, 0, 0, 0};
    return (struct hw_rectangle){(int)left, (int)low, (int)(right - left), (int)(high - low)};
}

uint64_t hw_rectangle_area(struct hw_rectangle r) {
    return r.width <= 0 || r.height <= 0 ? 0 : (uint64_t)r.width * (uint64_t)r.height;
}

struct point {
    double x, y;
};

static bool is_before(struct point p, struct point q) { return p.x != q.x ? p.x < q.x : p.y < q.y; }

/* A few points, for which qsort takes longer than all else. */
static void sort(struct point *points, int n) {
    for (int i = 1; i < n; i++) {
        struct point p = points[i];
        int at = i;
        for (; at > 0 && is_before(p, points[at - 1]); at--) points[at] = points[at - 1];
        points[at] = p;
    }
}

static double turn(struct point o, struct point a, struct point b) {
    return (a.x - o.x) * (b.y - o.y) - (a.y - o.y) * (b.x - o.x);
}

/* The convex hull (Andrew's monotone chain), counter-clockwise; `hull` has room for twice as many. */
static int convex_hull(struct point *points, int n, struct point *hull) {
    int k = 0;
    sort(points, n);
    for (int i = 0; i < n; i++) {
        while (k >= 2 && turn(hull[k - 2], hull[k - 1], points[i]) <= 0) k--;
        hull[k++] = points[i];
    }
    for (int i = n - 2, lower = k + 1; i >= 0; i--) {
        while (k >= lower && turn(hull[k - 2], hull[k - 1], points[i]) <= 0) k--;
        hull[k++] = points[i];
    }
    return k > 1 ? k - 1 : k;
}

/* Cuts a polygon at a line: what is where `sign * (x or y) >= sign * at` stays (Sutherland and Hodgman). */
static int cut(const struct point *in, int n, struct point *out, bool vertical, double sign, double at) {
    int k = 0;
    for (int i = 0; i < n; i++) {
        struct point a = in[i], b = in[(i + 1) % n];
        double da = sign * ((vertical ? a.x : a.y) - at), db = sign * ((vertical ? b.x : b.y) - at);
        if (da >= 0) out[k++] = a;
        if ((da >= 0) == (db >= 0)) continue;
        double t = da / (da - db);
        out[k++] = (struct point){a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)};
    }
    return k;
}

static double polygon_area(const struct point *p, int n) {
    double twice = 0;
    for (int i = 0; i < n; i++) twice += p[i].x * p[(i + 1) % n].y - p[(i + 1) % n].x * p[i].y;
    return fabs(twice) / 2;
}

/* Behind the eye, or in it, nothing is projected. */
#define NEAR 1e-5

uint64_t hw_projected_area(const struct hw_box *box, const float matrix[16], struct hw_rectangle viewport,
                           struct hw_rectangle clip) {
    double corner[8][4];
    struct point points[20], hull[48], other[48]; /* eight corners, twelve edges */
    int n = 0;
    clip = hw_intersection(viewport, clip);
    if (!hw_rectangle_area(clip)) return 0;
    if (!box->known) return hw_rectangle_area(clip);
    for (int i = 0; i < 8; i++)
        for (int row = 0; row < 4; row++) {
            double x = i & 1 ? box->high[0] : box->low[0], y = i & 2 ? box->high[1] : box->low[1];
            double z = i & 4 ? box->high[2] : box->low[2];
            corner[i][row] = matrix[row] * x + matrix[4 + row] * y + matrix[8 + row] * z + matrix[12 + row];
            if (!isfinite(corner[i][row])) return hw_rectangle_area(clip);
        }
    for (int i = 0; i < 8; i++) {
        if (corner[i][3] >= NEAR)
            points[n++] = (struct point){corner[i][0] / corner[i][3], corner[i][1] / corner[i][3]};
        for (int axis = 1; axis < 8; axis *= 2) {
            int j = i | axis;
            if (j == i || (corner[i][3] >= NEAR) == (corner[j][3] >= NEAR)) continue;
            double t = (NEAR - corner[i][3]) / (corner[j][3] - corner[i][3]);
            points[n++] = (struct point){(corner[i][0] + t * (corner[j][0] - corner[i][0])) / NEAR,
                                         (corner[i][1] + t * (corner[j][1] - corner[i][1])) / NEAR};
        }
    }
    bool inside = true;
    double right = (double)clip.x + clip.width, top = (double)clip.y + clip.height;
    for (int i = 0; i < n; i++) {
        points[i].x = viewport.x + (points[i].x + 1) / 2 * viewport.width;
        points[i].y = viewport.y + (points[i].y + 1) / 2 * viewport.height;
        if (!isfinite(points[i].x) || !isfinite(points[i].y)) return hw_rectangle_area(clip);
        inside = inside && points[i].x >= clip.x && points[i].x <= right && points[i].y >= clip.y && points[i].y <= top;
    }
    n = convex_hull(points, n, hull);
    if (inside) return (uint64_t)(polygon_area(hull, n) + 0.5);
    n = cut(hull, n, other, true, 1, clip.x);
    n = cut(other, n, hull, true, -1, right);
    n = cut(hull, n, other, false, 1, clip.y);
    n = cut(other, n, hull, false, -1, top);
    double area = polygon_area(hull, n);
    return area < (double)hw_rectangle_area(clip) ? (uint64_t)(area + 0.5) : hw_rectangle_area(clip);
}
