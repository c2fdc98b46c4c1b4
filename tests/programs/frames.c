/* Renders frames that depend on nothing but their number and prints a hash of each one's pixels.
 *
 *     frames [--route link|dlsym|deepbind|egl] [--frames N] [--threads N] [--contexts N]
 *            [--recreate] [--reload] [--fork] [--exec] [--signal] [--endless] [--exit-in-frame CODE]
 *
 * The same functions are reached by the route that is asked for. Prints too what a program could
 * see of somebody in between: GL errors, and an errno that a GL call changed. */
#define _GNU_SOURCE
#include <EGL/egl.h>
#include <GLES2/gl2.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 128

#define FUNCTIONS(F) \
    F(glAttachShader) F(glBindAttribLocation) F(glBindFramebuffer) F(glBindTexture) F(glClear) \
    F(glClearColor) F(glCompileShader) F(glCreateProgram) F(glCreateShader) F(glCopyTexSubImage2D) \
    F(glDisable) F(glDrawArrays) F(glDrawElements) F(glEnable) F(glEnableVertexAttribArray) \
    F(glFinish) F(glFlush) F(glFramebufferTexture2D) F(glGenFramebuffers) F(glGenTextures) \
    F(glGetError) F(glGetUniformLocation) F(glLinkProgram) F(glReadPixels) F(glScissor) \
    F(glShaderSource) F(glTexImage2D) F(glTexParameteri) F(glTexSubImage2D) F(glUniform1f) \
    F(glUseProgram) F(glVertexAttribPointer) F(glViewport)
#define EGL_FUNCTIONS(F) \
    F(eglBindAPI) F(eglChooseConfig) F(eglCreateContext) F(eglCreatePbufferSurface) \
    F(eglDestroyContext) F(eglDestroySurface) F(eglGetDisplay) F(eglInitialize) F(eglMakeCurrent) \
    F(eglSwapBuffers) F(eglTerminate)

#define POINTER(name) static __typeof__(&name) p_##name;
FUNCTIONS(POINTER) EGL_FUNCTIONS(POINTER)

static const char *route = "link";
static int frames = 8, contexts = 1, recreate, endless, exit_code = -1;
static volatile sig_atomic_t signals;
static void *libraries[2];

static void fail(const char *what) {
    fprintf(stderr, "frames: %s\n", what);
    exit(1);
}

static void find_functions(void) {
#ifndef UNLINKED /* else the libraries can really be unloaded */
    if (!strcmp(route, "link")) {
#define LINKED(name) p_##name = name;
        FUNCTIONS(LINKED) EGL_FUNCTIONS(LINKED)
        return;
    }
#endif
    int mode = RTLD_LAZY | RTLD_LOCAL | (strcmp(route, "deepbind") ? 0 : RTLD_DEEPBIND);
    void *egl = dlopen("libEGL.so.1", mode), *gl = dlopen("libGLESv2.so.2", mode);
    if (!egl || !gl) fail("no libEGL or libGLESv2");
    libraries[0] = gl, libraries[1] = egl;
#define IN_EGL(name) p_##name = (__typeof__(p_##name))dlsym(egl, #name);
    EGL_FUNCTIONS(IN_EGL)
#define IN_GL(name) p_##name = (__typeof__(p_##name))dlsym(gl, #name);
    FUNCTIONS(IN_GL)
    if (strcmp(route, "egl")) return;
    __typeof__(&eglGetProcAddress) look_up = (__typeof__(look_up))dlsym(egl, "eglGetProcAddress");
#define BY_EGL(name) p_##name = (__typeof__(p_##name))look_up(#name);
    FUNCTIONS(BY_EGL)
}

static GLuint shader(GLenum kind, const char *text) {
    GLuint name = p_glCreateShader(kind);
    p_glShaderSource(name, 1, &text, NULL);
    p_glCompileShader(name);
    return name;
}

struct scene {
    EGLDisplay display;
    EGLSurface surface;
    EGLContext context;
    GLuint program, texture, target, framebuffer;
    GLint turn;
};

static void open_scene(struct scene *s, EGLDisplay display) {
    EGLint want[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RED_SIZE, 8, EGL_GREEN_SIZE, 8,
                     EGL_BLUE_SIZE, 8, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT, EGL_NONE};
    EGLint size[] = {EGL_WIDTH, SIZE, EGL_HEIGHT, SIZE, EGL_NONE};
    EGLint es2[] = {EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE};
    EGLConfig config;
    EGLint count;
    s->display = display;
    p_eglBindAPI(EGL_OPENGL_ES_API);
    if (!p_eglChooseConfig(display, want, &config, 1, &count) || !count) fail("no config");
    s->surface = p_eglCreatePbufferSurface(display, config, size);
    s->context = p_eglCreateContext(display, config, EGL_NO_CONTEXT, es2);
    if (!p_eglMakeCurrent(display, s->surface, s->surface, s->context)) fail("no context");
    s->program = p_glCreateProgram();
    p_glAttachShader(s->program, shader(GL_VERTEX_SHADER,
        "attribute vec2 place; varying vec2 at; uniform float turn;"
        "void main() { at = place * .5 + .5; float c = cos(turn), d = sin(turn);"
        " gl_Position = vec4(mat2(c, d, -d, c) * place, 0, 1); }"));
    p_glAttachShader(s->program, shader(GL_FRAGMENT_SHADER,
        "precision mediump float; varying vec2 at; uniform sampler2D picture;"
        "void main() { gl_FragColor = texture2D(picture, at) * vec4(at, .5, 1); }"));
    p_glBindAttribLocation(s->program, 0, "place");
    p_glLinkProgram(s->program);
    s->turn = p_glGetUniformLocation(s->program, "turn");
    static unsigned char picture[16 * 16 * 4];
    for (size_t i = 0; i < sizeof picture; i++) picture[i] = (unsigned char)(i * 37);
    p_glGenTextures(1, &s->texture);
    p_glBindTexture(GL_TEXTURE_2D, s->texture);
    p_glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA, 16, 16, 0, GL_RGBA, GL_UNSIGNED_BYTE, picture);
    p_glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
    p_glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
    p_glGenTextures(1, &s->target);
    p_glBindTexture(GL_TEXTURE_2D, s->target);
    p_glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA, SIZE, SIZE, 0, GL_RGBA, GL_UNSIGNED_BYTE, NULL);
    p_glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
    p_glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
    p_glGenFramebuffers(1, &s->framebuffer);
}

static void close_scene(struct scene *s) {
    p_eglMakeCurrent(s->display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
    p_eglDestroyContext(s->display, s->context);
    p_eglDestroySurface(s->display, s->surface);
}

static void draw(const struct scene *s, GLuint texture, float turn) {
    static const GLfloat corners[] = {-.8f, -.8f, .8f, -.8f, .8f, .8f, -.8f, .8f};
    static const GLushort order[] = {0, 1, 2, 0, 2, 3};
    p_glUseProgram(s->program);
    p_glUniform1f(s->turn, turn);
    p_glBindTexture(GL_TEXTURE_2D, texture);
    p_glEnableVertexAttribArray(0);
    p_glVertexAttribPointer(0, 2, GL_FLOAT, GL_FALSE, 0, corners);
    p_glDrawElements(GL_TRIANGLES, 6, GL_UNSIGNED_SHORT, order);
    p_glDrawArrays(GL_TRIANGLES, 0, 3);
}

static uint64_t frame(const struct scene *s, int number) {
    static _Thread_local unsigned char pixels[SIZE * SIZE * 4];
    unsigned char patch[8 * 8 * 4];
    memset(patch, number * 29, sizeof patch);
    p_glViewport(0, 0, SIZE, SIZE);
    p_glBindFramebuffer(GL_FRAMEBUFFER, s->framebuffer);
    p_glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, s->target, 0);
    p_glClearColor(.1f, .2f, (float)(number % 16) / 15, 1);
    p_glClear(GL_COLOR_BUFFER_BIT);
    for (int i = 0; i < 20; i++) draw(s, s->texture, .1f * (float)(number + i));
    p_glBindFramebuffer(GL_FRAMEBUFFER, 0);
    p_glClear(GL_COLOR_BUFFER_BIT);
    p_glEnable(GL_SCISSOR_TEST);
    for (int i = 0; i < 40; i++) {
        p_glScissor(i, i, SIZE - 2 * i, SIZE - 2 * i);
        p_glClearColor((float)i / 40, (float)(number % 8) / 7, 0, 1);
        p_glClear(GL_COLOR_BUFFER_BIT);
    }
    p_glDisable(GL_SCISSOR_TEST);
    if (number == exit_code) _exit(exit_code);
    errno = 77;
    p_glFlush();
    if (errno != 77) printf("glFlush changed errno\n");
    draw(s, s->target, .03f * (float)number);
    p_glBindTexture(GL_TEXTURE_2D, s->texture);
    p_glTexSubImage2D(GL_TEXTURE_2D, 0, 4, 4, 8, 8, GL_RGBA, GL_UNSIGNED_BYTE, patch);
    p_glCopyTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, 16, 16, 4, 4);
    errno = 77;
    p_glFinish();
    if (errno != 77) printf("glFinish changed errno\n");
    p_glReadPixels(0, 0, SIZE, SIZE, GL_RGBA, GL_UNSIGNED_BYTE, pixels);
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < sizeof pixels; i++) hash = (hash ^ pixels[i]) * 0x100000001b3ull;
    p_eglSwapBuffers(s->display, s->surface);
    return hash;
}

static EGLDisplay display;

/* All frames of a thread as one text, so that threads do not mix their lines. */
static void *run(void *text) {
    struct scene scenes[8];
    char *end = text;
    for (int i = 0; i < contexts; i++) open_scene(&scenes[i], display);
    for (int number = 0; endless || number < frames; number++) {
        for (int i = 0; i < contexts; i++) {
            struct scene *s = &scenes[i];
            if (recreate && number) {
                close_scene(s);
                open_scene(s, display);
            } else if (contexts > 1)
                p_eglMakeCurrent(display, s->surface, s->surface, s->context);
            uint64_t hash = frame(s, endless ? number % frames : number);
            GLenum error = p_glGetError();
            if (endless) {
                printf("frame %d\n", number);
                fflush(stdout);
            } else
                end += sprintf(end, "frame %d of %d: %016llx error %x\n", number, i,
                               (unsigned long long)hash, error);
        }
    }
    for (int i = 0; i < contexts; i++) {
        p_eglMakeCurrent(display, scenes[i].surface, scenes[i].surface, scenes[i].context);
        close_scene(&scenes[i]);
    }
    return NULL;
}

static void render(int threads) {
    static char text[8][1 << 16];
    pthread_t others[8];
    find_functions();
    display = p_eglGetDisplay(EGL_DEFAULT_DISPLAY);
    if (!p_eglInitialize(display, NULL, NULL)) fail("no EGL");
    for (int i = 1; i < threads; i++) pthread_create(&others[i], NULL, run, text[i]);
    run(text[0]);
    for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
    for (int i = 0; i < threads; i++) printf("thread %d\n%s", i, text[i]);
    p_eglTerminate(display);
    memset(text, 0, sizeof text);
}

/* Interrupts whatever waits, and changes errno nowhere. */
static void on_signal(int number) {
    (void)number;
    signals++;
}

int main(int argc, char **argv) {
    int threads = 1, forks = 0, execs = 0, reload = 0;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--route")) route = next, i++;
        else if (!strcmp(argv[i], "--frames")) frames = atoi(next), i++;
        else if (!strcmp(argv[i], "--threads")) threads = atoi(next), i++;
        else if (!strcmp(argv[i], "--contexts")) contexts = atoi(next), i++;
        else if (!strcmp(argv[i], "--exit-in-frame")) exit_code = atoi(next), i++;
        else if (!strcmp(argv[i], "--recreate")) recreate = 1;
        else if (!strcmp(argv[i], "--reload")) reload = 1;
        else if (!strcmp(argv[i], "--endless")) endless = 1;
        else if (!strcmp(argv[i], "--fork")) forks = 1;
        else if (!strcmp(argv[i], "--exec")) execs = 1;
        else if (!strcmp(argv[i], "--signal")) {
            struct itimerval often = {{0, 3000}, {0, 3000}};
            struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
            sigaction(SIGALRM, &action, NULL);
            setitimer(ITIMER_REAL, &often, NULL);
        } else fail("what is that option?");
    }
    if (threads > 8 || contexts > 8) fail("at most 8 threads and 8 contexts");
    render(threads);
    fflush(stdout);
    if (reload) { /* as a game does when its video settings change */
        for (int i = 0; i < 2; i++)
            if (libraries[i]) dlclose(libraries[i]);
        render(threads);
    }
    if (forks) { /* the child inherits the parent's connections, but must not use them */
        pid_t child = fork();
        if (!child) {
            if (execs) execl("/proc/self/exe", "frames", "--frames", "3", (char *)NULL);
            _exit(9);
        }
        int status;
        waitpid(child, &status, 0);
        printf("child %d\n", WEXITSTATUS(status));
        render(threads);
    }
    return 0;
}
