/* What one gate costs: a tiny clear and a flush, over and over.
 *
 *     gates [seconds]
 */
#include <EGL/egl.h>
#include <GLES2/gl2.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    EGLDisplay display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
    EGLint count;
    if (!eglInitialize(display, NULL, NULL)) return fprintf(stderr, "gates: no EGL\n"), 1;
    eglBindAPI(EGL_OPENGL_ES_API);
    EGLint want[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT, EGL_NONE};
    EGLint size[] = {EGL_WIDTH, 16, EGL_HEIGHT, 16, EGL_NONE}, es2[] = {EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE};
    EGLConfig config;
    if (!eglChooseConfig(display, want, &config, 1, &count) || !count) return fprintf(stderr, "gates: no config\n"), 1;
    EGLSurface surface = eglCreatePbufferSurface(display, config, size);
    EGLContext context = eglCreateContext(display, config, EGL_NO_CONTEXT, es2);
    if (!eglMakeCurrent(display, surface, surface, context)) return fprintf(stderr, "gates: no context\n"), 1;
    unsigned long passed = 0;
    for (int round = 0; round < 2; round++) { /* the first one warms up */
        double start = now(), end = start + (round ? seconds : .2);
        for (passed = 0; now() < end; passed++) {
            glScissor((int)(passed % 3), 0, 4, 4);
            glClear(GL_COLOR_BUFFER_BIT);
            glFlush();
        }
        if (round) printf("%.0f ns per group\n", 1e9 * (now() - start) / (double)passed);
        glFinish();
    }
    return 0;
}
