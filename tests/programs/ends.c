/* Threads that draw and end in all ways, one for each line on standard input.
 *
 *     thread     a thread draws, waits for it and ends with its context current
 *     destroy    the contexts that such threads left are destroyed
 *     begin      a thread draws and draws
 *     cancel     that thread is cancelled, and has ended
 *     draw       the first thread draws and reads back what it drew
 *
 * Says in one line what it did. */
#include <EGL/egl.h>
#include <GLES2/gl2.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MANY 64
enum { SIZE = 256 };

static EGLDisplay display;
static EGLConfig config;
static EGLSurface surfaces[MANY];
static EGLContext contexts[MANY];
static int count;
static pthread_t endless;

static void fail(const char *what) {
    fprintf(stderr, "ends: %s\n", what);
    _Exit(1);
}

/* A context of the calling thread's own, current on it. */
static void make_current(void) {
    EGLint size[] = {EGL_WIDTH, SIZE, EGL_HEIGHT, SIZE, EGL_NONE};
    EGLint es2[] = {EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE};
    eglBindAPI(EGL_OPENGL_ES_API);
    if (count == MANY) fail("too many threads");
    surfaces[count] = eglCreatePbufferSurface(display, config, size);
    contexts[count] = eglCreateContext(display, config, EGL_NO_CONTEXT, es2);
    if (!eglMakeCurrent(display, surfaces[count], surfaces[count], contexts[count])) fail("no context");
    count++;
}

static void draw(int clears) {
    glEnable(GL_SCISSOR_TEST);
    for (int i = 0; i < clears; i++) {
        glScissor(i % 16, i % 16, SIZE - 16, SIZE - 16);
        glClearColor((float)(i % 8) / 8, .5f, .25f, 1);
        glClear(GL_COLOR_BUFFER_BIT);
    }
}

static void *draw_once(void *unused) {
    make_current();
    draw(4);
    glFinish();
    return unused;
}

static void *draw_for_ever(void *unused) {
    make_current();
    for (;;) {
        draw(4);
        glFlush();
    }
    return unused;
}

static void run(void *(*what)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, what, NULL);
    if (what == draw_for_ever) endless = thread;
    else pthread_join(thread, NULL);
}

static void read_back(void) {
    static unsigned char pixels[SIZE * SIZE * 4];
    unsigned long hash = 5381;
    draw(40);
    glReadPixels(0, 0, SIZE, SIZE, GL_RGBA, GL_UNSIGNED_BYTE, pixels);
    for (size_t i = 0; i < sizeof pixels; i++) hash = hash * 33 + pixels[i];
    printf("drawn %lx\n", hash);
}

int main(void) {
    EGLint want[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT, EGL_NONE};
    EGLint found;
    char word[32];
    display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
    if (!eglInitialize(display, NULL, NULL)) fail("no EGL");
    if (!eglChooseConfig(display, want, &config, 1, &found) || !found) fail("no config");
    make_current();
    while (scanf("%31s", word) == 1) {
        if (!strcmp(word, "thread")) run(draw_once), puts("ended");
        else if (!strcmp(word, "begin")) run(draw_for_ever), puts("begun");
        else if (!strcmp(word, "cancel")) {
            void *how;
            pthread_cancel(endless);
            pthread_join(endless, &how);
            puts(how == PTHREAD_CANCELED ? "cancelled" : "ended");
        } else if (!strcmp(word, "destroy")) {
            for (; count > 1; count--) {
                eglDestroyContext(display, contexts[count - 1]);
                eglDestroySurface(display, surfaces[count - 1]);
            }
            puts("destroyed");
        } else if (!strcmp(word, "draw")) read_back();
        else puts("what?");
        fflush(stdout);
    }
    return 0;
}
