/* Calls functions with nothing but zeros: `nulls gl|cuda|opencl LIBRARY NAME...`, or, of OpenGL ES, with sizes that are
 * none: `nulls sizes LIBRARY glClear glDrawArrays`. Prints for each whether the call came
 * back, and with what: a GL error, or an API's own result. Each that did not ends a child, and the next one goes on. */
#define _GNU_SOURCE
#include <EGL/egl.h>
#include <GLES2/gl2.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef long (*function)(long, long, long, long, long, long, long, long, long, long, long, long);
struct answer {
    int called, back;
    long said;
};

static void *library;

static void make_gl_current(void) {
    static EGLDisplay display;
    static EGLSurface surface;
    static EGLContext context;
    EGLint want[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT, EGL_NONE};
    EGLint size[] = {EGL_WIDTH, 16, EGL_HEIGHT, 16, EGL_NONE}, es2[] = {EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE}, n;
    EGLConfig config;
    if (!context) {
        display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
        if (!eglInitialize(display, NULL, NULL) || !eglChooseConfig(display, want, &config, 1, &n) || !n) exit(3);
        surface = eglCreatePbufferSurface(display, config, size);
        context = eglCreateContext(display, config, EGL_NO_CONTEXT, es2);
    }
    eglBindAPI(EGL_OPENGL_ES_API);
    if (!eglMakeCurrent(display, surface, surface, context)) exit(3);
    while (glGetError()) {}
}

static void make_cuda_current(void) {
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(library, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(library, "cuCtxSetCurrent");
    void *context = NULL;
    if (!init || !retain || !set || init(0) || retain(&context, 0) || set(context)) exit(3);
}

/* A clear of one pixel, and a draw of less than nothing: -102 vertices. */
static void call_with_sizes(struct answer *answers) {
    void (*read)(int, int, int, int, unsigned, unsigned, void *) = dlsym(library, "glReadPixels");
    unsigned char pixel[4];
    make_gl_current();
    for (int i = 0; i < 2; i++) answers[i].called = 1;
    for (int round = 0; round < 20; round++) {
        glEnable(GL_SCISSOR_TEST);
        glScissor(0, 0, 1, 1);
        glClear(GL_COLOR_BUFFER_BIT);
        answers[0].said = glGetError();
        glDrawArrays(GL_TRIANGLES, 0, -102);
        answers[1].said = glGetError();
        read(0, 0, 1, 1, GL_RGBA, GL_UNSIGNED_BYTE, pixel);
    }
    for (int i = 0; i < 2; i++) answers[i].back = 1;
}

/* From this name on, until one does not come back. */
static void call(const char *api, char **names, struct answer *answers, int first) {
    for (int i = first; names[i]; i++) {
        if (!strcmp(api, "gl")) make_gl_current();
        if (!strcmp(api, "cuda")) make_cuda_current();
        function f = (function)dlsym(library, names[i]);
        answers[i].called = 1;
        if (!f) continue;
        alarm(10);
        answers[i].said = (int)f(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        if (!strcmp(api, "gl")) answers[i].said = glGetError();
        answers[i].back = 1;
    }
}

int main(int argc, char **argv) {
    char **names = argv + 3;
    int count = argc - 3, status = 0;
    if (count < 1) return 2;
    size_t size = (size_t)count * sizeof(struct answer);
    struct answer *answers = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    library = dlopen(argv[2], RTLD_LAZY | RTLD_GLOBAL);
    if (!library || answers == MAP_FAILED) return 3;
    for (int i = 0; i < count && !status; i++) {
        if (answers[i].called) continue;
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            if (!strcmp(argv[1], "sizes")) call_with_sizes(answers);
            else call(argv[1], names, answers, i);
            _exit(0);
        }
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 3) return 3;
        status = 0;
        if (!answers[i].called) return 3;
    }
    for (int i = 0; i < count; i++)
        printf("%s %s %ld\n", names[i], answers[i].back ? "back" : "gone", answers[i].back ? answers[i].said : 0);
    return 0;
}
