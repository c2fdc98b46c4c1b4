/* Ways to draw that a context monitor has to follow, or to give up on: a square over a quarter of 256x256 pixels, in 20 frames.
 *
 *     varied MODE [stay]
 *
 * Prints a checksum of the last frame and how many errors OpenGL told. Told to stay, it waits in place of that. */
#include <EGL/egl.h>
#include <GLES3/gl31.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 256, FRAMES = 20 };

#define HEAD "#version 310 es\nlayout(location = 0) in vec3 position;\n"
#define PLAIN HEAD "uniform mat4 mvp;\nvoid main() { gl_Position = mvp * vec4(position, 1.0); }\n"
#define PRODUCT HEAD "uniform mat4 p, v, m;\nvoid main() { gl_Position = p * v * (m * vec4(position, 1.0)); }\n"
#define PLACED HEAD "layout(location = 5) uniform mat4 mvp;\nvoid main() { gl_Position = mvp * vec4(position, 1.0); }\n"
#define BLOCK \
    HEAD "layout(std140, binding = 3) uniform Camera { vec4 eye; mat4 mvp; } camera;\n" \
         "void main() { gl_Position = camera.mvp * vec4(position, 1.0); }\n"
#define NO_MATRIX \
    HEAD "uniform float size;\nvec4 placed(vec3 at) { return vec4(at * size, 1.0); }\n" \
         "void main() { gl_Position = placed(position); }\n"
#define FRAGMENT "#version 310 es\nprecision mediump float;\nout vec4 colour;\nvoid main() { colour = vec4(0.4, 0.2, 0.6, 0.5); }\n"

static EGLDisplay display;
static EGLConfig config;
static EGLSurface surface;
static int errors;
static const float square[] = {-1, -1, 0, 1, -1, 0, 1, 1, 0, -1, 1, 0};
static const unsigned short corners[] = {0, 1, 2, 0, 2, 3};
static const float half_size[16] = {.5f, 0, 0, 0, 0, .5f, 0, 0, 0, 0, .5f, 0, 0, 0, 0, 1};
static const float doubled[16] = {2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1};

static EGLContext open_context(EGLContext shared) {
    EGLint version[] = {EGL_CONTEXT_CLIENT_VERSION, 3, EGL_NONE};
    EGLContext context = eglCreateContext(display, config, shared, version);
    if (!eglMakeCurrent(display, surface, surface, context)) exit(fprintf(stderr, "varied: no context\n"));
    return context;
}

static GLuint use(const char *vertex) {
    const char *sources[] = {vertex, FRAGMENT};
    GLuint program = glCreateProgram();
    GLint linked;
    for (int i = 0; i < 2; i++) {
        GLuint shader = glCreateShader(i ? GL_FRAGMENT_SHADER : GL_VERTEX_SHADER);
        glShaderSource(shader, 1, &sources[i], NULL);
        glCompileShader(shader);
        glAttachShader(program, shader);
    }
    glLinkProgram(program);
    glGetProgramiv(program, GL_LINK_STATUS, &linked);
    if (!linked) exit(fprintf(stderr, "varied: no program\n"));
    glUseProgram(program);
    return program;
}

static void set(GLuint program, const char *name, const float *matrix) {
    glUniformMatrix4fv(glGetUniformLocation(program, name), 1, GL_FALSE, matrix);
}

static GLuint upload(GLenum target, const void *data, GLsizeiptr size) {
    GLuint name;
    glGenBuffers(1, &name);
    glBindBuffer(target, name);
    glBufferData(target, size, data, GL_DYNAMIC_DRAW);
    return name;
}

static void point_at(const void *data) {
    glVertexAttribPointer(0, 3, GL_FLOAT, GL_FALSE, 0, data);
    glEnableVertexAttribArray(0);
}

/* All of it for one context. */
static void prepare(const char *vertex) {
    GLuint program = use(vertex);
    if (!strcmp(vertex, PLAIN)) set(program, "mvp", half_size);
    upload(GL_ARRAY_BUFFER, square, sizeof square);
    upload(GL_ELEMENT_ARRAY_BUFFER, corners, sizeof corners);
    point_at(NULL);
}

static void draw(void) { glDrawElements(GL_TRIANGLES, 6, GL_UNSIGNED_SHORT, NULL); }

static void garbage(void) {
    glDrawArrays(GL_TRIANGLES, -5, 3);
    glDrawArrays(GL_TRIANGLES, 0, INT_MIN);
    glDrawArrays(0x7777, 0, INT_MAX);
    glDrawElements(GL_TRIANGLES, -1, GL_UNSIGNED_SHORT, NULL);
    glDrawElements(GL_TRIANGLES, 6, GL_FLOAT, NULL);
    glDrawElementsInstanced(GL_TRIANGLES, 6, GL_UNSIGNED_SHORT, NULL, -2);
    glClear(~0u);
    while (glGetError()) errors++;
}

static void rewrite(int frame) {
    float mesh[12];
    for (int i = 0; i < 12; i++) mesh[i] = square[i] * (float)(frame + 1) / FRAMES;
    glBufferData(GL_ARRAY_BUFFER, sizeof mesh, mesh, GL_STREAM_DRAW);
}

static void map(int frame) {
    glBufferData(GL_ARRAY_BUFFER, sizeof square, NULL, GL_STREAM_DRAW);
    float *to = glMapBufferRange(GL_ARRAY_BUFFER, 0, sizeof square, GL_MAP_WRITE_BIT | GL_MAP_INVALIDATE_BUFFER_BIT);
    for (int i = 0; i < 12; i++) to[i] = square[i] * (float)(frame + 1) / FRAMES;
    glUnmapBuffer(GL_ARRAY_BUFFER);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
#define IS(name) (!strcmp(mode, name))
    EGLint want[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES3_BIT, EGL_RED_SIZE, 8, EGL_NONE};
    EGLint size[] = {EGL_WIDTH, SIZE, EGL_HEIGHT, SIZE, EGL_NONE}, count;
    static unsigned char pixels[4 * SIZE * SIZE];
    display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
    if (!eglInitialize(display, NULL, NULL) || !eglChooseConfig(display, want, &config, 1, &count) || !count)
        return fprintf(stderr, "varied: no EGL\n"), 1;
    eglBindAPI(EGL_OPENGL_ES_API);
    surface = eglCreatePbufferSurface(display, config, size);
    EGLContext first = open_context(EGL_NO_CONTEXT), second = NULL;
    GLuint program, vao = 0;
    prepare(PLAIN);
    if (IS("product")) {
        program = use(PRODUCT);
        set(program, "p", half_size);
        set(program, "v", doubled);
        set(program, "m", half_size);
    } else if (IS("placed")) {
        use(PLACED);
        glUniformMatrix4fv(5, 1, GL_FALSE, half_size);
    } else if (IS("block")) {
        float data[20] = {0};
        memcpy(data + 4, half_size, sizeof half_size);
        use(BLOCK);
        glBindBufferBase(GL_UNIFORM_BUFFER, 3, upload(GL_UNIFORM_BUFFER, data, sizeof data));
    } else if (IS("no-matrix")) {
        program = use(NO_MATRIX);
        glUniform1f(glGetUniformLocation(program, "size"), .5f);
    } else if (IS("client")) {
        glBindBuffer(GL_ARRAY_BUFFER, 0);
        glBindBuffer(GL_ELEMENT_ARRAY_BUFFER, 0);
        point_at(square);
    } else if (IS("vao")) {
        glGenVertexArrays(1, &vao);
        glBindVertexArray(vao);
        upload(GL_ELEMENT_ARRAY_BUFFER, corners, sizeof corners);
        point_at(NULL);
        glBindVertexArray(0);
        glDisableVertexAttribArray(0);
    } else if (IS("zero"))
        glViewport(10, 10, 0, 0);
    else if (IS("shared")) { /* vertex arrays are not shared, buffers and programs are */
        GLint names[3];
        glGetIntegerv(GL_ARRAY_BUFFER_BINDING, &names[0]);
        glGetIntegerv(GL_ELEMENT_ARRAY_BUFFER_BINDING, &names[1]);
        glGetIntegerv(GL_CURRENT_PROGRAM, &names[2]);
        glFinish();
        second = open_context(first);
        glBindBuffer(GL_ARRAY_BUFFER, (GLuint)names[0]);
        glBindBuffer(GL_ELEMENT_ARRAY_BUFFER, (GLuint)names[1]);
        glUseProgram((GLuint)names[2]);
        point_at(NULL);
    }
    glClearColor(.1f, .2f, .3f, 1);
    for (int frame = 0; frame < FRAMES; frame++) {
        glClear(GL_COLOR_BUFFER_BIT);
        if (IS("rewritten")) rewrite(frame);
        if (IS("mapped")) map(frame);
        if (IS("garbage")) garbage();
        if (IS("lost") && frame % 5 == 4) { /* as a program does after GL_CONTEXT_LOST: all of it anew */
            eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
            eglDestroyContext(display, first);
            first = open_context(EGL_NO_CONTEXT);
            prepare(PLAIN);
            glClearColor(.1f, .2f, .3f, 1);
            glClear(GL_COLOR_BUFFER_BIT);
        }
        if (vao) glBindVertexArray(vao);
        if (IS("client")) glDrawElements(GL_TRIANGLES, 6, GL_UNSIGNED_SHORT, corners);
        else if (IS("instanced")) glDrawElementsInstanced(GL_TRIANGLES, 6, GL_UNSIGNED_SHORT, NULL, 8);
        else if (IS("overdraw")) {
            glEnable(GL_BLEND);
            glBlendFunc(GL_SRC_ALPHA, GL_ONE_MINUS_SRC_ALPHA);
            for (int i = 0; i < 5; i++) draw();
        } else draw();
        if (vao) glBindVertexArray(0);
        if (frame == FRAMES - 1) glReadPixels(0, 0, SIZE, SIZE, GL_RGBA, GL_UNSIGNED_BYTE, pixels);
        eglSwapBuffers(display, surface);
    }
    if (argc > 2) return pause();
    while (glGetError()) errors++;
    unsigned long sum = 0;
    for (size_t i = 0; i < sizeof pixels; i++) sum = sum * 31 + pixels[i];
    printf("%s %lx, %d errors%s\n", mode, sum, errors, second ? ", shared" : "");
    return 0;
}
