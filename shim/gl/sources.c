/* The shaders' sources of a program that is calibrated. */
#define _GNU_SOURCE
#include "sources.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <unistd.h>

/* Written under another name first: who reads the folder finds whole files. */
static void write_file(const char *name, const char *text, size_t size) {
    const char *folder = secure_getenv("HEADWAY_SHADERS");
    char path[4096], half[4096 + 16];
    if (!folder || snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return;
    snprintf(half, sizeof half, "%s.%d", path, (int)getpid());
    int fd = open(half, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return;
    bool whole = write(fd, text, size) == (ssize_t)size;
    close(fd);
    if (!whole || rename(half, path)) unlink(half);
}

void hw_sources_keep(unsigned type, uint64_t hash, const char *text, size_t size) {
    char name[64];
    snprintf(name, sizeof name, "%016llx.%s", (unsigned long long)hash, type == 0x8B31 ? "vert" : "frag");
    if (type == 0x8B31 || type == 0x8B30) write_file(name, text, size);
}

void hw_sources_linked(uint64_t program, uint64_t vertex, uint64_t fragment) {
    char name[64], text[64];
    snprintf(name, sizeof name, "%016llx.program", (unsigned long long)program);
    int size = snprintf(text, sizeof text, "%016llx %016llx\n", (unsigned long long)vertex, (unsigned long long)fragment);
    write_file(name, text, (size_t)size);
}
