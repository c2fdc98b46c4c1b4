/* What a program is called: every Python program would be "python3" otherwise. */
#define _GNU_SOURCE
#include "name.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* The words of a command line, one after another; NULL behind the last whole one. */
struct words {
    const char *next, *end;
};

static const char *take(struct words *words) {
    const char *word = words->next;
    size_t left = (size_t)(words->end - word);
    size_t length = strnlen(word, left);
    if (length == left) return NULL;
    words->next += length + 1;
    return word;
}

/* What Python was told to run, by its own rules for options: -m, -c, -W and -X take the rest of their word or the next
 * one, and what is no option is the script. NULL: code on the command line, standard input, or a prompt. */
static const char *script(struct words *words) {
    const char *word = take(words); /* Python itself */
    while (word && (word = take(words))) {
        if (word[0] != '-') return word;
        if (!word[1]) return NULL;
        if (word[1] == '-') {
            if (!strcmp(word, "--check-hash-based-pycs")) word = take(words);
            continue;
        }
        const char *letter = word + 1 + strcspn(word + 1, "cmWX");
        if (*letter == 'c') return NULL;
        if (*letter == 'm') return letter[1] ? letter + 1 : take(words);
        if (*letter && !letter[1]) word = take(words);
    }
    return NULL;
}

static ssize_t command_line(char *text, size_t size) {
    int error = errno, file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, size);
    if (file >= 0) close(file);
    errno = error;
    return length;
}

void hw_program_name(char *name, size_t size) {
    const char *found = program_invocation_short_name;
    char text[4096];
    if (!strncmp(found, "python", 6)) {
        ssize_t length = command_line(text, sizeof text);
        struct words words = {text, text + (length > 0 ? length : 0)};
        const char *runs = length > 0 ? script(&words) : NULL;
        const char *slash = runs ? strrchr(runs, '/') : NULL;
        if (slash) runs = slash + 1;
        if (runs && *runs) found = runs;
    }
    strncpy(name, found, size - 1);
    name[size - 1] = 0;
}
