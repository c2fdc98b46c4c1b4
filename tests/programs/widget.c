/* A desktop widget: draws frames of one cost into a window at one place, as fast as it can.
 *
 *     widget [x] [y] [size] [clears]
 *
 * Widgets side by side, each in sight: an X server does nothing for a window that is covered. */
#include <EGL/egl.h>
#include <GLES2/gl2.h>
#include <X11/Xlib.h>
#include <X11/Xutil.h>
#include <stdio.h>
#include <stdlib.h>

static int number(int argc, char **argv, int place, int otherwise) {
    return argc > place ? atoi(argv[place]) : otherwise;
}

int main(int argc, char **argv) {
    int x = number(argc, argv, 1, 0), y = number(argc, argv, 2, 0);
    int size = number(argc, argv, 3, 300), clears = number(argc, argv, 4, 20);
    Display *native = XOpenDisplay(NULL);
    if (!native) return fprintf(stderr, "widget: no display\n"), 1;
    EGLDisplay display = eglGetDisplay((EGLNativeDisplayType)native);
    EGLint want[] = {EGL_RED_SIZE, 8, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT, EGL_NONE};
    EGLint es2[] = {EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE}, count, visual;
    EGLConfig config;
    eglBindAPI(EGL_OPENGL_ES_API);
    if (!eglInitialize(display, NULL, NULL) || !eglChooseConfig(display, want, &config, 1, &count) || !count)
        return fprintf(stderr, "widget: no config\n"), 1;
    eglGetConfigAttrib(display, config, EGL_NATIVE_VISUAL_ID, &visual);
    XVisualInfo like = {.visualid = (VisualID)visual}, *info = XGetVisualInfo(native, 1L, &like, &count);
    if (!info) return fprintf(stderr, "widget: no visual\n"), 1;
    Window root = DefaultRootWindow(native);
    XSetWindowAttributes attributes = {.override_redirect = True,
                                       .colormap = XCreateColormap(native, root, info->visual, AllocNone)};
    Window window = XCreateWindow(native, root, x, y, (unsigned)size, (unsigned)size, 0, info->depth,
                                  InputOutput, info->visual, CWColormap | CWOverrideRedirect, &attributes);
    XMapWindow(native, window);
    EGLContext context = eglCreateContext(display, config, EGL_NO_CONTEXT, es2);
    EGLSurface surface = eglCreateWindowSurface(display, config, (EGLNativeWindowType)window, NULL);
    if (!eglMakeCurrent(display, surface, surface, context)) return fprintf(stderr, "widget: no context\n"), 1;
    glEnable(GL_SCISSOR_TEST);
    for (unsigned frame = 0;; frame++) {
        for (int i = 0; i < clears; i++) { /* without the scissor they would collapse into one */
            glScissor(i % 5, i % 3, size - 5, size - 3);
            glClearColor((float)((frame + (unsigned)i) % 64) / 63, .5f, (float)i / (float)clears, 1);
            glClear(GL_COLOR_BUFFER_BIT);
        }
        eglSwapBuffers(display, surface);
    }
}
