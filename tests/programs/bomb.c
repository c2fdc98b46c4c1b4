/* A clear bomb, after Clearspd: scissored clears as fast as the driver takes them, to nobody's use.
 * Full clears in a row would collapse into one, so each clears another part.
 *
 *     bomb [seconds] [size] [clears per flush] [clears in all]
 *
 * With a number of clears it stops there and prints a hash of what it drew.
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
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    int size = argc > 2 ? atoi(argv[2]) : 1024, batch = argc > 3 ? atoi(argv[3]) : 100;
    EGLDisplay display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
    EGLint major, minor, count;
    if (!eglInitialize(display, &major, &minor)) return fprintf(stderr, "bomb: no EGL\n"), 1;
    eglBindAPI(EGL_OPENGL_ES_API);
    EGLint want[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT, EGL_NONE};
    EGLConfig config;
    if (!eglChooseConfig(display, want, &config, 1, &count) || !count)
        return fprintf(stderr, "bomb: no config\n"), 1;
    EGLint surface_size[] = {EGL_WIDTH, size, EGL_HEIGHT, size, EGL_NONE};
    EGLint es2[] = {EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE};
    EGLSurface surface = eglCreatePbufferSurface(display, config, surface_size);
    EGLContext context = eglCreateContext(display, config, EGL_NO_CONTEXT, es2);
    if (!eglMakeCurrent(display, surface, surface, context)) return fprintf(stderr, "bomb: no context\n"), 1;
    glViewport(0, 0, size, size);
    glEnable(GL_SCISSOR_TEST);
    unsigned long clears = 0, all = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
    double start = now();
    while (all ? clears < all : now() - start < seconds) {
        for (int i = 0; i < batch; i++, clears++) {
            glScissor((int)(clears % 7), (int)(clears % 5), size - 8, size - 8);
            glClearColor((float)(clears % 256) / 255.f, 0, 0, 1);
            glClear(GL_COLOR_BUFFER_BIT);
        }
        glFlush();
    }
    glFinish();
    if (all) {
        unsigned char *pixels = malloc((size_t)size * (size_t)size * 4);
        unsigned long hash = 0xcbf29ce484222325ul;
        glReadPixels(0, 0, size, size, GL_RGBA, GL_UNSIGNED_BYTE, pixels);
        for (long i = 0; i < (long)size * size * 4; i++) hash = (hash ^ pixels[i]) * 0x100000001b3ul;
        printf("%lu clears, hash %lx, error %x\n", clears, hash, glGetError());
        return 0;
    }
    printf("%lu clears in %.2f s = %.1f per second\n", clears, now() - start, (double)clears / (now() - start));
    eglDestroyContext(display, context);
    eglTerminate(display);
    return 0;
}
