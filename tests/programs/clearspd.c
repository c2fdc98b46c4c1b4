/* Clearspd of Mesa's demos for OpenGL ES 2.0, as libETP's section VI varies it: rows of clears, each with its glFinish.
 *
 *     clearspd fixed|random|contexts [seconds] [clears] [seed]
 *
 * `fixed`: as many clears each time, in one of 64 colours. `random`: 1 to so many, at random. `contexts`: always as many, in
 * black, in turn in a context of 640x480 and in one of 1920x1080. A clear leaves out a row or a column of pixels: drivers
 * make one of full clears in a row. */
#include <EGL/egl.h>
#include <GLES2/gl2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "fixed";
    double seconds = argc > 2 ? atof(argv[2]) : 5;
    int most = argc > 3 ? atoi(argv[3]) : 300, contexts = strcmp(mode, "contexts") ? 1 : 2;
    srand(argc > 4 ? (unsigned)atoi(argv[4]) : 1);
    EGLDisplay display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
    EGLint major, minor, count;
    if (!eglInitialize(display, &major, &minor)) return fprintf(stderr, "clearspd: no EGL\n"), 1;
    eglBindAPI(EGL_OPENGL_ES_API);
    EGLint want[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT, EGL_NONE};
    EGLConfig config;
    if (!eglChooseConfig(display, want, &config, 1, &count) || !count)
        return fprintf(stderr, "clearspd: no config\n"), 1;
    EGLint es2[] = {EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE};
    EGLSurface surface[2];
    EGLContext context[2];
    int width[] = {640, 1920}, height[] = {480, 1080};
    for (int i = 0; i < contexts; i++) {
        EGLint size[] = {EGL_WIDTH, width[i], EGL_HEIGHT, height[i], EGL_NONE};
        surface[i] = eglCreatePbufferSurface(display, config, size);
        context[i] = eglCreateContext(display, config, EGL_NO_CONTEXT, es2);
        if (!eglMakeCurrent(display, surface[i], surface[i], context[i]))
            return fprintf(stderr, "clearspd: no context\n"), 1;
        glEnable(GL_SCISSOR_TEST);
    }
    unsigned long rows = 0, clears = 0;
    for (double end = now() + seconds; now() < end; rows++) {
        int which = (int)(rows % (unsigned long)contexts), n = strcmp(mode, "random") ? most : 1 + rand() % most;
        if (contexts > 1) eglMakeCurrent(display, surface[which], surface[which], context[which]);
        glClearColor(contexts > 1 ? 0 : (float)(rows % 64) / 64.f, 0, 0, 1);
        for (int i = 0; i < n; i++, clears++) {
            glScissor(i % 2, i / 2 % 2, width[which] - 1, height[which] - 1);
            glClear(GL_COLOR_BUFFER_BIT);
        }
        glFinish();
    }
    printf("%lu rows, %lu clears, error %x\n", rows, clears, glGetError());
    return 0;
}
