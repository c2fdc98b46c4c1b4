/* The types of OpenGL's functions. Its headers are not needed: they differ between OpenGL and OpenGL ES. */
#ifndef HEADWAY_GL_TYPES_H
#define HEADWAY_GL_TYPES_H

#include <stdint.h>

typedef unsigned GLenum, GLbitfield, GLuint;
typedef int GLint, GLsizei;
typedef short GLshort;
typedef float GLfloat;
typedef double GLdouble;
typedef unsigned char GLubyte, GLboolean;
typedef char GLchar;
typedef intptr_t GLintptr;
typedef void *GLsync;

#endif
