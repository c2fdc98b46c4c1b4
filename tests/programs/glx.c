/* The old ways of OpenGL, through GLX in a window: display lists, glBegin, glXGetProcAddress.
 *
 *     glx [link|look-up] [frames]
 *
 * Prints a hash of each frame's pixels and the GL errors a program could see. */
#define _GNU_SOURCE
#define GL_GLEXT_PROTOTYPES
#include <GL/gl.h>
#include <GL/glx.h>
#include <X11/Xlib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 128

static void (*clear)(GLbitfield), (*call_list)(GLuint), (*begin)(GLenum), (*end)(void);
static void (*read_pixels)(GLint, GLint, GLsizei, GLsizei, GLenum, GLenum, void *);
static void (*swap)(Display *, GLXDrawable);

static void *look_up(const char *name) { return (void *)glXGetProcAddressARB((const GLubyte *)name); }

static void find_functions(int linked) {
    clear = linked ? glClear : look_up("glClear");
    call_list = linked ? glCallList : look_up("glCallList");
    begin = linked ? glBegin : look_up("glBegin");
    end = linked ? glEnd : look_up("glEnd");
    read_pixels = linked ? glReadPixels : look_up("glReadPixels");
    swap = linked ? glXSwapBuffers : look_up("glXSwapBuffers");
}

static void fan(float size) {
    begin(GL_TRIANGLE_FAN);
    for (int i = 0; i < 40; i++) {
        glColor3f((float)i / 40, size, 1 - size);
        glVertex2f(size * (float)((i * 7) % 11) / 11, size * (float)((i * 5) % 13) / 13);
    }
    end();
}

int main(int argc, char **argv) {
    int linked = argc < 2 || !strcmp(argv[1], "link"), frames = argc > 2 ? atoi(argv[2]) : 6;
    Display *display = XOpenDisplay(NULL);
    if (!display) return fprintf(stderr, "glx: no display\n"), 1;
    int want[] = {GLX_RGBA, GLX_DOUBLEBUFFER, GLX_RED_SIZE, 8, GLX_GREEN_SIZE, 8, GLX_BLUE_SIZE, 8, None};
    XVisualInfo *visual = glXChooseVisual(display, DefaultScreen(display), want);
    if (!visual) return fprintf(stderr, "glx: no visual\n"), 1;
    XSetWindowAttributes attributes = {
        .colormap = XCreateColormap(display, RootWindow(display, visual->screen), visual->visual, AllocNone)};
    Window window = XCreateWindow(display, RootWindow(display, visual->screen), 0, 0, SIZE, SIZE, 0,
                                  visual->depth, InputOutput, visual->visual, CWColormap, &attributes);
    XMapWindow(display, window);
    GLXContext context = glXCreateContext(display, visual, NULL, True);
    if (!glXMakeCurrent(display, window, context)) return fprintf(stderr, "glx: no context\n"), 1;
    find_functions(linked);
    GLuint lists = glGenLists(3);
    glNewList(lists, GL_COMPILE); /* nothing is drawn here */
    for (int i = 0; i < 30; i++) fan(.9f);
    glEndList();
    glNewList(lists + 1, GL_COMPILE);
    glColor3f(.5f, 1, .5f);
    glVertex2f(-.5f, -.5f);
    glEndList();
    static unsigned char pixels[SIZE * SIZE * 4];
    for (int number = 0; number < frames; number++) {
        glClearColor(.1f, (float)number / (float)frames, .3f, 1);
        clear(GL_COLOR_BUFFER_BIT);
        for (int i = 0; i < 50; i++) {
            glLoadIdentity();
            glRotatef((float)(number * 10 + i), 0, 0, 1);
            call_list(lists);
        }
        begin(GL_TRIANGLES); /* a list in the middle of a primitive: no flush is allowed here */
        for (int i = 0; i < 300; i++) {
            call_list(lists + 1);
            glVertex2f((float)(i % 17) / 17, -.2f);
            glVertex2f((float)(i % 13) / 13, .7f);
        }
        end();
        glNewList(lists + 2, GL_COMPILE_AND_EXECUTE);
        fan(.2f);
        glEndList();
        read_pixels(0, 0, SIZE, SIZE, GL_RGBA, GL_UNSIGNED_BYTE, pixels);
        uint64_t hash = 0xcbf29ce484222325ull;
        for (size_t i = 0; i < sizeof pixels; i++) hash = (hash ^ pixels[i]) * 0x100000001b3ull;
        printf("frame %d: %016llx error %x\n", number, (unsigned long long)hash, glGetError());
        swap(display, window);
    }
    glXMakeCurrent(display, None, NULL);
    glXDestroyContext(display, context);
    XCloseDisplay(display);
    return 0;
}
