/* The programs of libETP's section VI, without a window: rows of clears, gears, rotating models, and what changes scenes.
 *
 *     gcc -O2 -o scenes scenes.c -lEGL -lGLESv2 -lm
 *     scenes flush|clears|random|contexts|gears|build|shading|changes [seconds] [groups] [seed] [clears]
 *
 * `flush`: the smallest groups there are: a clear of one pixel and a glFlush (Figure 6). `clears`: Clearspd, 300 clears, or as
 * many as told, and a glFinish, in one of 64 colours (Figure 7). `random`: 1 to 500 clears, or 5/3 of what is told (Figure 8).
 * `contexts`: 300 clears in turn in a context of 640x480 and in one of 1920x1080 (Figure 12). `gears`: three gears in 280 draws of 2 to 5 triangles (Figure 9).
 * `build`, `shading`: a model in one draw a frame, lit once for each vertex, or three times for each pixel (Figures 10, 11).
 * `changes`: models that come, go, grow and change their programs and their viewport.
 *
 * Ends after so many seconds or groups; 0: no end by that. A clear leaves out a row or a column of pixels, for drivers make
 * one of full clears in a row. */
#define EGL_EGLEXT_PROTOTYPES
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GLES2/gl2.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURN 6.2831853f
enum { WIDTH = 800, HEIGHT = 600, STRIPS = 512, CLEARS = 300 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double end_s;
static unsigned long groups, most_groups;

static int goes_on(void) { return now() < end_s && (!most_groups || groups < most_groups); }

/* ---- contexts ------------------------------------------------------------------------------ */

static EGLDisplay display;
static EGLConfig config;
static EGLSurface surface[2];

static int fail(const char *what) { return fprintf(stderr, "scenes: %s\n", what), 1; }

/* The usual display, or one without any window system. */
static int open_display(void) {
    EGLDisplay known[] = {eglGetDisplay(EGL_DEFAULT_DISPLAY), eglGetPlatformDisplay(EGL_PLATFORM_DEVICE_EXT, NULL, NULL),
                          eglGetPlatformDisplay(EGL_PLATFORM_SURFACELESS_MESA, NULL, NULL)};
    EGLint want[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT, EGL_DEPTH_SIZE, 16, EGL_NONE};
    for (int i = 0; i < 3; i++) {
        EGLint count = 0;
        if (!known[i] || !eglInitialize(known[i], NULL, NULL)) continue;
        if (!eglChooseConfig(known[i], want, &config, 1, &count) || !count) continue;
        display = known[i];
        return eglBindAPI(EGL_OPENGL_ES_API);
    }
    return 0;
}

static EGLContext open_context(int which, int width, int height) {
    EGLint es2[] = {EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE}, size[] = {EGL_WIDTH, width, EGL_HEIGHT, height, EGL_NONE};
    EGLContext context = eglCreateContext(display, config, EGL_NO_CONTEXT, es2);
    surface[which] = eglCreatePbufferSurface(display, config, size);
    return eglMakeCurrent(display, surface[which], surface[which], context) ? context : NULL;
}

/* ---- clears -------------------------------------------------------------------------------- */

static void flushes(void) {
    glEnable(GL_SCISSOR_TEST);
    glScissor(0, 0, 1, 1);
    for (; goes_on(); groups++) {
        glClear(GL_COLOR_BUFFER_BIT);
        glFlush();
    }
    glFinish();
}

static int clears(const char *mode, int usual) {
    int width[] = {300, 1920}, height[] = {300, 1080}, contexts = strcmp(mode, "contexts") ? 1 : 2;
    EGLContext context[2];
    if (contexts == 2) width[0] = 640, height[0] = 480;
    for (int i = 0; i < contexts; i++) {
        if (!(context[i] = open_context(i, width[i], height[i]))) return fail("no context");
        glEnable(GL_SCISSOR_TEST);
    }
    for (; goes_on(); groups++) {
        int which = (int)(groups % (unsigned long)contexts), n = usual;
        if (!strcmp(mode, "random")) n = 1 + rand() % (usual * 5 / 3 + 1);
        if (contexts > 1) eglMakeCurrent(display, surface[which], surface[which], context[which]);
        glClearColor(contexts > 1 ? 0 : (float)(groups % 64) / 64.f, 0, 0, 1);
        for (int i = 0; i < n; i++) {
            glScissor(i % 2, i / 2 % 2, width[which] - 1, height[which] - 1);
            glClear(GL_COLOR_BUFFER_BIT);
        }
        glFinish();
    }
    return 0;
}

/* ---- matrices, in columns ------------------------------------------------------------------ */

struct matrix {
    float at[16];
};

static struct matrix product(struct matrix a, struct matrix b) {
    struct matrix c = {{0}};
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 4; k++) c.at[i] += a.at[i % 4 + 4 * k] * b.at[i / 4 * 4 + k];
    return c;
}

static struct matrix moved(float x, float y, float z, float size) {
    return (struct matrix){{size, 0, 0, 0, 0, size, 0, 0, 0, 0, size, 0, x, y, z, 1}};
}

static struct matrix turned(int axis, float angle) {
    struct matrix m = moved(0, 0, 0, 1);
    int a = (axis + 1) % 3, b = (axis + 2) % 3;
    m.at[5 * a] = m.at[5 * b] = cosf(angle);
    m.at[4 * a + b] = sinf(angle);
    m.at[4 * b + a] = -sinf(angle);
    return m;
}

static struct matrix perspective(float wide) {
    float near = 1, far = 100, scale = 1 / tanf(TURN / 12);
    return (struct matrix){{scale / wide, 0, 0, 0, 0, scale, 0, 0, 0, 0, (far + near) / (near - far), -1, 0, 0,
                            2 * far * near / (near - far), 0}};
}

/* ---- programs ------------------------------------------------------------------------------ */

static const char *by_vertex[] = {
    "attribute vec3 position;\nattribute vec3 normal;\n"
    "uniform mat4 ModelViewProjectionMatrix;\nuniform mat4 NormalMatrix;\nuniform vec4 Colour;\nvarying vec4 lit;\n"
    "void main(void) {\n"
    "    vec3 n = normalize(vec3(NormalMatrix * vec4(normal, 0.0)));\n"
    "    lit = Colour * (0.3 + 0.7 * max(dot(n, normalize(vec3(5.0, 5.0, 10.0))), 0.0));\n"
    "    gl_Position = ModelViewProjectionMatrix * vec4(position, 1.0);\n}\n",
    "precision mediump float;\nvarying vec4 lit;\nvoid main(void) { gl_FragColor = lit; }\n"};
static const char *by_pixel[] = {
    "attribute vec3 position;\nattribute vec3 normal;\n"
    "uniform mat4 ModelViewProjectionMatrix;\nuniform mat4 NormalMatrix;\nvarying vec3 facing;\nvarying vec3 place;\n"
    "void main(void) {\n"
    "    facing = vec3(NormalMatrix * vec4(normal, 0.0));\n    place = position;\n"
    "    gl_Position = ModelViewProjectionMatrix * vec4(position, 1.0);\n}\n",
    "precision mediump float;\nuniform vec4 Colour;\nvarying vec3 facing;\nvarying vec3 place;\n"
    "void main(void) {\n"
    "    vec3 n = normalize(facing);\n    vec3 sum = vec3(0.1);\n"
    "    for (int i = 0; i < 3; i++) {\n"
    "        vec3 from = normalize(vec3(float(i) * 3.0 - 3.0, 4.0, 6.0) - place);\n"
    "        vec3 half_way = normalize(from + vec3(0.0, 0.0, 1.0));\n"
    "        sum += 0.4 * max(dot(n, from), 0.0) * Colour.rgb + vec3(0.3 * pow(max(dot(n, half_way), 0.0), 20.0));\n"
    "    }\n"
    "    gl_FragColor = vec4(sum, Colour.a);\n}\n"};

static GLuint program_of(const char *sources[2]) {
    GLuint program = glCreateProgram();
    for (int i = 0; i < 2; i++) {
        GLuint shader = glCreateShader(i ? GL_FRAGMENT_SHADER : GL_VERTEX_SHADER);
        glShaderSource(shader, 1, &sources[i], NULL);
        glCompileShader(shader);
        glAttachShader(program, shader);
    }
    glBindAttribLocation(program, 0, "position");
    glBindAttribLocation(program, 1, "normal");
    glLinkProgram(program);
    GLint linked = 0;
    glGetProgramiv(program, GL_LINK_STATUS, &linked);
    return linked ? program : 0;
}

static void place(GLuint program, struct matrix model, struct matrix eye, float red, float green, float blue) {
    struct matrix all = product(eye, model);
    glUseProgram(program);
    glUniformMatrix4fv(glGetUniformLocation(program, "ModelViewProjectionMatrix"), 1, GL_FALSE, all.at);
    glUniformMatrix4fv(glGetUniformLocation(program, "NormalMatrix"), 1, GL_FALSE, model.at);
    glUniform4f(glGetUniformLocation(program, "Colour"), red, green, blue, 1);
}

/* ---- models -------------------------------------------------------------------------------- */

struct model {
    GLuint buffer;
    GLenum mode;
    int strips, first[STRIPS], count[STRIPS];
};

static float *vertices;
static size_t used, room;

static void vertex(float x, float y, float z, float a, float b, float c) {
    if (used + 6 > room && !(vertices = realloc(vertices, (room = 2 * room + 6000) * sizeof *vertices))) exit(fail("no memory"));
    float all[] = {x, y, z, a, b, c};
    memcpy(vertices + used, all, sizeof all);
    used += 6;
}

static struct model begin(GLenum mode) {
    used = 0;
    return (struct model){.mode = mode};
}

static void end_strip(struct model *m) {
    int before = m->strips ? m->first[m->strips - 1] + m->count[m->strips - 1] : 0;
    m->first[m->strips] = before;
    m->count[m->strips++] = (int)(used / 6) - before;
}

static void upload(struct model *m) {
    glGenBuffers(1, &m->buffer);
    glBindBuffer(GL_ARRAY_BUFFER, m->buffer);
    glBufferData(GL_ARRAY_BUFFER, (GLsizeiptr)(used * sizeof *vertices), vertices, GL_STATIC_DRAW);
}

/* A flat piece between the angles `from` and `to`, at two radii each, from z on by `deep`; or across if `flat`. */
static void wall(struct model *m, float from, float at_from, float to, float at_to, float deep) {
    float mid = (from + to) / 2;
    for (int i = 0; i < 4; i++) {
        float angle = i < 2 ? from : to, radius = i < 2 ? at_from : at_to;
        vertex(radius * cosf(angle), radius * sinf(angle), i % 2 ? -deep / 2 : deep / 2, cosf(mid), sinf(mid), 0);
    }
    end_strip(m);
}

static void face(struct model *m, float from, float step, float hole, float root, float tip, float z) {
    float radius[] = {hole, root, hole, tip, hole, tip, root};
    for (int i = 0; i < 7; i++) {
        float angle = from + step * (float)(i / 2);
        vertex(radius[i] * cosf(angle), radius[i] * sinf(angle), z, 0, 0, z > 0 ? 1 : -1);
    }
    end_strip(m);
}

/* Seven strips for each tooth. */
static struct model gear(float hole, float outer, float deep, int teeth, float tooth) {
    struct model m = begin(GL_TRIANGLE_STRIP);
    float root = outer - tooth / 2, tip = outer + tooth / 2, step = TURN / (float)teeth / 4;
    for (int i = 0; i < teeth; i++) {
        float at = TURN * (float)i / (float)teeth;
        face(&m, at, step, hole, root, tip, deep / 2);
        face(&m, at, step, hole, root, tip, -deep / 2);
        wall(&m, at, root, at + step, tip, deep);
        wall(&m, at + step, tip, at + 2 * step, tip, deep);
        wall(&m, at + 2 * step, tip, at + 3 * step, root, deep);
        wall(&m, at + 3 * step, root, at + 4 * step, root, deep);
        wall(&m, at, hole, at + 4 * step, hole, -deep);
    }
    upload(&m);
    return m;
}

static void ball(float x, float y, float z, float wide, float high, float deep, int fine) {
    for (int i = 0; i < fine; i++)
        for (int j = 0; j < fine; j++)
            for (int k = 0; k < 6; k++) { /* two triangles */
                int right = k == 1 || k == 2 || k == 4, up = k == 2 || k == 4 || k == 5;
                float a = TURN * (float)(i + right) / (float)fine, b = TURN / 2 * ((float)(j + up) / (float)fine - .5f);
                float n[] = {cosf(b) * cosf(a), sinf(b), cosf(b) * sinf(a)};
                vertex(x + wide * n[0], y + high * n[1], z + deep * n[2], n[0], n[1], n[2]);
            }
}

/* An animal on four legs, as one mesh. */
static struct model animal(float neck, float leg, int fine) {
    struct model m = begin(GL_TRIANGLES);
    ball(0, 0, 0, 1.2f, .55f, .5f, fine);
    ball(1.2f, neck / 2, 0, .3f, neck / 2 + .3f, .25f, fine);
    ball(1.5f, neck + .2f, 0, .5f, .25f, .25f, fine);
    ball(-1.4f, -.1f, 0, .5f, .12f, .12f, fine / 2);
    for (int i = 0; i < 4; i++) ball(i < 2 ? .8f : -.8f, -.4f - leg / 2, i % 2 ? .3f : -.3f, .16f, leg / 2 + .2f, .16f, fine / 2);
    end_strip(&m);
    upload(&m);
    return m;
}

static void draw(const struct model *m) {
    glBindBuffer(GL_ARRAY_BUFFER, m->buffer);
    for (GLuint i = 0; i < 2; i++) {
        glVertexAttribPointer(i, 3, GL_FLOAT, GL_FALSE, 6 * sizeof(float), (const void *)(3 * i * sizeof(float)));
        glEnableVertexAttribArray(i);
    }
    for (int i = 0; i < m->strips; i++) glDrawArrays(m->mode, m->first[i], m->count[i]);
}

/* ---- scenes -------------------------------------------------------------------------------- */

static void clear(void) {
    glClearColor(.1f, .1f, .1f, 1);
    glClear(GL_COLOR_BUFFER_BIT | GL_DEPTH_BUFFER_BIT);
}

static void show(void) {
    eglSwapBuffers(display, surface[0]);
    groups++;
}

static int gears(void) {
    GLuint program = program_of(by_vertex);
    struct model big = gear(1, 4, 1, 20, .7f), thin = gear(.5f, 2, 2, 10, .7f), wide = gear(1.3f, 2, .5f, 10, .7f);
    struct matrix eye = product(perspective(1), product(moved(0, 0, -12, .4f), product(turned(0, .35f), turned(1, .5f))));
    if (!program) return fail("the shaders are not compiled");
    glViewport(0, 0, 300, 300);
    for (double start = now(); goes_on(); show()) {
        float angle = (float)fmod(now() - start, 1e3) * 1.2f;
        clear();
        place(program, product(moved(-3, -2, 0, 1), turned(2, angle)), eye, .8f, .1f, 0);
        draw(&big);
        place(program, product(moved(3.1f, -2, 0, 1), turned(2, -2 * angle - .16f)), eye, 0, .8f, .2f);
        draw(&thin);
        place(program, product(moved(-3.1f, 4.2f, 0, 1), turned(2, -2 * angle - .44f)), eye, .2f, .2f, 1);
        draw(&wide);
    }
    return 0;
}

static int turning(const char *mode) {
    int lit = strcmp(mode, "build") != 0;
    GLuint program = program_of(lit ? by_pixel : by_vertex);
    struct model m = lit ? animal(.5f, .6f, 32) : animal(1.2f, 1.2f, 24);
    struct matrix eye = product(perspective((float)WIDTH / HEIGHT), moved(0, 0, -5, 1));
    if (!program) return fail("the shaders are not compiled");
    for (double start = now(); goes_on(); show()) {
        clear();
        place(program, turned(1, (float)fmod(now() - start, 1e3) * .6f), eye, .3f, .4f, .9f);
        draw(&m);
    }
    return 0;
}

/* Another scene every 5 to 60 frames. */
static int changes(void) {
    GLuint program[] = {program_of(by_vertex), program_of(by_pixel)};
    struct model models[] = {animal(.5f, .6f, 10), animal(1.2f, 1.2f, 14), gear(1, 2, .5f, 12, .5f)};
    int left = 0, things = 1, which = 0, small = 0;
    float distance = 6;
    if (!program[0] || !program[1]) return fail("the shaders are not compiled");
    for (double start = now(); goes_on(); show()) {
        float angle = (float)fmod(now() - start, 1e3);
        if (!left--) {
            left = 5 + rand() % 56;
            things = 1 + rand() % 12;
            which = rand() % 6;
            small = rand() % 4 == 0;
            distance = 5 + (float)(rand() % 60) / 10;
        }
        int width = small ? WIDTH / 2 : WIDTH, height = small ? HEIGHT / 2 : HEIGHT;
        glViewport(0, 0, width, height);
        clear();
        struct matrix eye = product(perspective((float)WIDTH / HEIGHT), moved(0, 0, -distance, 1));
        for (int i = 0; i < things; i++) {
            struct matrix model = product(moved((float)(i % 4) * 2 - 3, (float)(i / 4) * 2 - 2, 0, .6f), turned(1, angle + (float)i));
            place(program[which % 2], model, eye, .9f, .5f, .1f * (float)i);
            draw(&models[which / 2]);
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    double seconds = argc > 2 ? atof(argv[2]) : 5;
    int result;
    most_groups = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    srand(argc > 4 ? (unsigned)atoi(argv[4]) : 1);
    if (!strstr("flush clears random contexts gears build shading changes", mode) || strlen(mode) < 5)
        return fail("expected flush, clears, random, contexts, gears, build, shading or changes");
    if (!open_display()) return fail("no EGL display with a pbuffer and OpenGL ES 2.0");
    end_s = seconds > 0 ? now() + seconds : 1e300;
    if (strstr("clears random contexts", mode)) result = clears(mode, argc > 5 && atoi(argv[5]) > 0 ? atoi(argv[5]) : CLEARS);
    else if (!open_context(0, WIDTH, HEIGHT)) result = fail("no context");
    else {
        glEnable(GL_DEPTH_TEST);
        result = 0;
        if (!strcmp(mode, "flush")) flushes();
        else if (!strcmp(mode, "gears")) result = gears();
        else result = strcmp(mode, "changes") ? turning(mode) : changes();
    }
    if (!result) printf("%lu groups, error %x\n", groups, glGetError());
    return result;
}
