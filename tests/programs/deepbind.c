/* Loads a library that is to find its own functions first, and calls one of them, with the other arguments:
 *
 *     deepbind LIBRARY FUNCTION ARGUMENT... */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

/* The library may have another one of that name. */
int answer(void);
int answer(void) { return 1; }

int main(int argc, char **argv) {
    void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) : NULL;
    int (*function)(int, char **) = library ? (int (*)(int, char **))dlsym(library, argv[2]) : NULL;
    if (function) return function(argc - 2, argv + 2);
    fprintf(stderr, "deepbind: %s\n", argc > 2 ? dlerror() : "a library and its function?");
    return 99;
}
