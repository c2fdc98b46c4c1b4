/* An ordinary OpenGL ES program without a window, for measuring how a GPU is shared: it knows of no scheduler.
 *
 *     glapp cal DRAW_US                    how many loops make a draw that long
 *     glapp hp  DRAWS PERIOD_MS SECONDS    a frame every period: draws, then glFinish
 *     glapp lp  DRAWS 0         SECONDS    the same, as fast as it goes
 *
 * Prints one JSON line. LOOPS comes from `glapp cal`; SIZE is the picture's edge in pixels; START_AT is a time in
 * seconds. The hash is that of a stripe of the first frames, which depend on nothing but their number. The first
 * EGL device that can draw is taken, else Mesa's surfaceless platform. */
#define _GNU_SOURCE
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GLES3/gl3.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GL_FUNCTIONS(F) \
    F(glAttachShader) F(glBindFramebuffer) F(glBindRenderbuffer) F(glBlendFunc) F(glCheckFramebufferStatus) \
    F(glClear) F(glClearColor) F(glCompileShader) F(glCreateProgram) F(glCreateShader) F(glDrawArrays) F(glEnable) \
    F(glFinish) F(glFramebufferRenderbuffer) F(glGenFramebuffers) F(glGenRenderbuffers) F(glGetError) \
    F(glGetProgramiv) F(glGetString) F(glGetUniformLocation) F(glLinkProgram) F(glReadPixels) \
    F(glRenderbufferStorage) F(glShaderSource) F(glUniform1ui) F(glUseProgram) F(glViewport)
#define EGL_FUNCTIONS(F) \
    F(eglBindAPI) F(eglChooseConfig) F(eglCreateContext) F(eglCreatePbufferSurface) F(eglGetProcAddress) \
    F(eglInitialize) F(eglMakeCurrent)

#define POINTER(name) static __typeof__(&name) p_##name;
GL_FUNCTIONS(POINTER) EGL_FUNCTIONS(POINTER)

enum { WARM_UP = 5, CHECKED = 32, MAX_DEVICES = 16 };
static GLint loops_at, mix_at, size = 512;
static GLuint loops = 100;

static void fail(const char *what) {
    fprintf(stderr, "glapp: %s\n", what);
    exit(3);
}

static double now_us(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double now(void) { return now_us(CLOCK_MONOTONIC); }

/* ---- a context ------------------------------------------------------------------------------- */

static void find_functions(void) {
    void *egl = dlopen("libEGL.so.1", RTLD_LAZY), *gl = dlopen("libGLESv2.so.2", RTLD_LAZY);
    if (!egl || !gl) fail(dlerror());
#define FIND_EGL(name) p_##name = (__typeof__(p_##name))dlsym(egl, #name);
#define FIND_GL(name) p_##name = (__typeof__(p_##name))dlsym(gl, #name);
    EGL_FUNCTIONS(FIND_EGL) GL_FUNCTIONS(FIND_GL)
}

static int begin_on(EGLDisplay display) {
    EGLint want[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES3_BIT, EGL_NONE};
    EGLint small[] = {EGL_WIDTH, 16, EGL_HEIGHT, 16, EGL_NONE}, es3[] = {EGL_CONTEXT_CLIENT_VERSION, 3, EGL_NONE};
    EGLConfig config;
    EGLint count = 0;
    if (!display || !p_eglInitialize(display, NULL, NULL) || !p_eglBindAPI(EGL_OPENGL_ES_API)) return 0;
    if (!p_eglChooseConfig(display, want, &config, 1, &count) || !count) return 0;
    EGLSurface surface = p_eglCreatePbufferSurface(display, config, small);
    EGLContext context = p_eglCreateContext(display, config, EGL_NO_CONTEXT, es3);
    return context && p_eglMakeCurrent(display, surface, surface, context);
}

static void begin(void) {
    PFNEGLQUERYDEVICESEXTPROC list = (PFNEGLQUERYDEVICESEXTPROC)p_eglGetProcAddress("eglQueryDevicesEXT");
    PFNEGLGETPLATFORMDISPLAYEXTPROC open =
        (PFNEGLGETPLATFORMDISPLAYEXTPROC)p_eglGetProcAddress("eglGetPlatformDisplayEXT");
    EGLDeviceEXT devices[MAX_DEVICES];
    EGLint count = 0;
    if (!open) fail("EGL without platforms");
    if (list) list(MAX_DEVICES, devices, &count);
    for (EGLint i = 0; i < count; i++)
        if (begin_on(open(EGL_PLATFORM_DEVICE_EXT, devices[i], NULL))) return;
    if (!begin_on(open(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, NULL))) fail("no EGL device can draw");
}

/* ---- pictures -------------------------------------------------------------------------------- */

static const char *vertex =
    "#version 300 es\n"
    "void main() { gl_Position = vec4(vec2(gl_VertexID % 2, gl_VertexID / 2) * 4. - 1., 0., 1.); }\n";
static const char *fragment =
    "#version 300 es\n"
    "precision highp float; precision highp int;\n"
    "uniform uint loops, mixed; out vec4 colour;\n"
    "void main() {\n"
    "    uint v = uint(gl_FragCoord.x) + uint(gl_FragCoord.y) * 4096u + mixed;\n"
    "    for (uint i = 0u; i < loops; i++) v = v * 1664525u + 1013904223u;\n"
    "    colour = vec4(v >> 24 & 255u, v >> 16 & 255u, v >> 8 & 255u, 255u) / 1020.;\n"
    "}\n";

static void compile(GLuint program, GLenum kind, const char *text) {
    GLuint shader = p_glCreateShader(kind);
    p_glShaderSource(shader, 1, &text, NULL);
    p_glCompileShader(shader);
    p_glAttachShader(program, shader);
}

static void prepare(void) {
    GLuint program = p_glCreateProgram(), buffer, picture;
    GLint good = 0;
    compile(program, GL_VERTEX_SHADER, vertex);
    compile(program, GL_FRAGMENT_SHADER, fragment);
    p_glLinkProgram(program);
    p_glGetProgramiv(program, GL_LINK_STATUS, &good);
    if (!good) fail("a shader does not compile");
    p_glUseProgram(program);
    loops_at = p_glGetUniformLocation(program, "loops");
    mix_at = p_glGetUniformLocation(program, "mixed");
    p_glGenFramebuffers(1, &picture);
    p_glBindFramebuffer(GL_FRAMEBUFFER, picture);
    p_glGenRenderbuffers(1, &buffer);
    p_glBindRenderbuffer(GL_RENDERBUFFER, buffer);
    p_glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, size, size);
    p_glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, buffer);
    if (p_glCheckFramebufferStatus(GL_FRAMEBUFFER) != GL_FRAMEBUFFER_COMPLETE) fail("no picture to draw on");
    p_glViewport(0, 0, size, size);
    p_glEnable(GL_BLEND); /* else a draw hides those before it, and a driver may leave them out */
    p_glBlendFunc(GL_ONE, GL_ONE);
}

/* How long it took, in us. */
static double frame(unsigned number, int draws) {
    double start = now();
    p_glClearColor(0, 0, (float)(number % 8) / 16, 1);
    p_glClear(GL_COLOR_BUFFER_BIT);
    p_glUniform1ui(loops_at, loops);
    for (int i = 0; i < draws; i++) {
        p_glUniform1ui(mix_at, number * 97 + (unsigned)i);
        p_glDrawArrays(GL_TRIANGLES, 0, 3);
    }
    p_glFinish();
    return now() - start;
}

static uint64_t hashed(uint64_t hash) {
    static unsigned char pixels[4096 * 4];
    p_glReadPixels(0, size / 2, size, 1, GL_RGBA, GL_UNSIGNED_BYTE, pixels);
    for (int i = 0; i < size * 4; i++) hash = (hash ^ pixels[i]) * 0x100000001b3ull;
    return hash;
}

static int calibrate(double draw_us) {
    for (int i = 0; i < 8; i++) {
        frame(0, 10);
        double found = loops * draw_us * 10 / frame(0, 10);
        loops = found < 1 ? 1 : found > 1e7 ? 10000000 : (GLuint)found;
    }
    return printf("{\"loops\": %u, \"renderer\": \"%s\"}\n", loops, (const char *)p_glGetString(GL_RENDERER)) < 0;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *start_at = getenv("START_AT"), *edge = getenv("SIZE");
    if (argc != (strcmp(mode, "cal") ? 5 : 3)) return fprintf(stderr, "glapp hp|lp DRAWS PERIOD_MS SECONDS\n"), 2;
    if (edge) size = atoi(edge);
    if (size < 1 || size > 4096) fail("SIZE is 1 to 4096");
    if (getenv("LOOPS")) loops = (GLuint)atoi(getenv("LOOPS"));
    find_functions();
    begin();
    prepare();
    if (!strcmp(mode, "cal")) return calibrate(atof(argv[2]));
    int draws = atoi(argv[2]);
    double period = atof(argv[3]) * 1e3, length = atof(argv[4]) * 1e6;
    size_t room = 1024, frames = 0;
    double *times = malloc(room * sizeof *times);
    uint64_t hash = 0xcbf29ce484222325ull;
    for (unsigned i = 0; i < WARM_UP; i++) frame(i, draws);
    while (start_at && now_us(CLOCK_REALTIME) < atof(start_at) * 1e6) usleep(200);
    double start = now(), next = start + period;
    while (now() < start + length) {
        while (period > 0 && now() < next) {}
        if (frames == room) times = realloc(times, (room *= 2) * sizeof *times);
        times[frames] = frame((unsigned)frames, draws);
        if (frames++ < CHECKED) hash = hashed(hash);
        next = next + period < now() ? now() : next + period;
    }
    double elapsed = now() - start;
    qsort(times, frames, sizeof *times, by_size);
#define QUANTILE(p) times[(size_t)((p) * (double)(frames - 1))]
    printf("{\"mode\": \"%s\", \"frames\": %zu, \"per_s\": %.2f, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, "
           "\"max_us\": %.1f, \"gl_error\": %u, \"hash\": ",
           mode, frames, (double)frames * 1e6 / elapsed, QUANTILE(.5), QUANTILE(.9), QUANTILE(.99), times[frames - 1],
           p_glGetError());
    if (frames < CHECKED) printf("\"too few\"}\n");
    else printf("\"%016llx\"}\n", (unsigned long long)hash);
    return 0;
}
