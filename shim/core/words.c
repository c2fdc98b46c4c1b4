#define _GNU_SOURCE
#include "words.h"
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct stat standard_error;
static bool speaks;

void hw_words_begin(void) {
    int error = errno;
    speaks = !getenv("HEADWAY_QUIET") && !fstat(2, &standard_error);
    errno = error;
}

void hw_warn(const char *what) {
    char line[512];
    int error = errno;
    struct stat now;
    struct pollfd room = {.fd = 2, .events = POLLOUT};
    int length = snprintf(line, sizeof line, "headway: %s: %s\n", program_invocation_short_name, what);
    if (speaks && length > 0 && length < (int)sizeof line && !fstat(2, &now) && now.st_dev == standard_error.st_dev &&
        now.st_ino == standard_error.st_ino && poll(&room, 1, 0) == 1 && room.revents & POLLOUT) {
        ssize_t ignored = write(2, line, (size_t)length);
        (void)ignored;
    }
    errno = error;
}
