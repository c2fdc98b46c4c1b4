#define _GNU_SOURCE
#include "units.h"
#include "connection.h"
#include "gate.h"
#include "own.h"
#include "words.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* How long the daemon may take to answer, and how long a unit may take to come: whoever owns it may have been stopped. */
#define ANSWER_MS 2000
#define UNIT_MS 10000
/* Programs expect the low descriptors for themselves. */
#define HIGH_FD 200

hw_int hw_units;
static char place[33], path[108];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t free_again = PTHREAD_COND_INITIALIZER;
/* Under the lock. */
static bool taken;        /* a thread of this process owns a unit, or asks for one */
static int fd = -1;       /* the connection, of this process and no other */
static ino_t ours;        /* which socket that is: programs close descriptors that they do not know */
static int owed;          /* answers to what was given back, not read yet */
static size_t chunk;
static char heard[1024];
static size_t have;
static _Thread_local bool mine;

static bool is_ours(void) {
    struct stat info;
    return fd >= 0 && !fstat(fd, &info) && S_ISSOCK(info.st_mode) && info.st_ino == ours;
}

static void hang_up(void) {
    if (is_ours()) close(fd);
    fd = -1;
    owed = 0;
    have = 0;
}

/* The connection is the parent's, and so are the threads that own units; a child has a connection of its own. */
static void in_child(void) {
    int error = errno;
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&free_again, NULL);
    hang_up();
    mine = taken = false;
    errno = error;
}

__attribute__((constructor)) static void begin(void) {
    const char *socket_path = getenv("HEADWAY_UNITS"), *key = getenv("HEADWAY_PLACE");
    if (!socket_path || !key || strlen(socket_path) >= sizeof path || strlen(key) >= sizeof place) return;
    for (const char *c = key; *c; c++)
        if (!strchr("0123456789abcdef", *c)) return;
    strcpy(path, socket_path);
    strcpy(place, key);
    hw_store(&hw_units, true);
    pthread_atfork(NULL, NULL, in_child);
}

/* No more units: one line, and the program goes on. */
static bool give_up(const char *why) {
    char line[256];
    hang_up();
    if (hw_load(&hw_units)) {
        snprintf(line, sizeof line, "its kernels and copies pass no units any more: %s", why);
        hw_warn(line);
    }
    hw_store(&hw_units, false);
    pthread_cond_broadcast(&free_again);
    return false;
}

static bool say(const char *text) {
    size_t size = strlen(text), sent = 0;
    while (sent < size) {
        ssize_t n = is_ours() ? send(fd, text + sent, size - sent, MSG_NOSIGNAL) : -1;
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        sent += (size_t)n;
    }
    return true;
}

/* The next line that was said to us, without its end; NULL: none came in time. */
static const char *listen_for(uint64_t end_ns) {
    static char line[sizeof heard];
    for (;;) {
        char *end = memchr(heard, '\n', have);
        if (end) {
            size_t size = (size_t)(end - heard);
            memcpy(line, heard, size);
            line[size] = 0;
            have -= size + 1;
            memmove(heard, end + 1, have);
            return line;
        }
        uint64_t now = hw_now();
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (now >= end_ns || have == sizeof heard || !is_ours()) return NULL;
        int n = poll(&ready, 1, (int)((end_ns - now) / 1000000) + 1);
        if (n < 0 && errno != EINTR) return NULL;
        if (n <= 0) continue;
        ssize_t got = recv(fd, heard + have, sizeof heard - have, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) return NULL;
        have += (size_t)got;
    }
}

static uint64_t in_ms(uint64_t ms) { return hw_now() + ms * 1000000; }

/* The answer to what was said last. */
static const char *answer(void) {
    const char *line = NULL;
    for (owed++; owed; owed--)
        if (!(line = listen_for(in_ms(ANSWER_MS)))) return NULL;
    return strstr(line, "\"ok\":true") ? line : NULL;
}

static bool attach(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_usec = 200000};
    struct stat info;
    char words[128];
    int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, HIGH_FD);
    if (low >= 0) close(low);
    if (fd < 0 || fstat(fd, &info)) return false;
    ours = info.st_ino;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    strcpy(address.sun_path, path);
    snprintf(words, sizeof words, "{\"do\":\"lock\",\"act\":\"attach\",\"place\":\"%s\"}\n", place);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) || !hw_is_trusted(fd) || !say(words)) return false;
    const char *line = answer();
    const char *told = line ? strstr(line, "\"chunk\":") : NULL;
    chunk = told ? strtoull(told + 8, NULL, 10) : 0;
    return line;
}

static bool ask(char kind) {
    const char *unit = kind == 'h' ? "h2d" : kind == 'd' ? "d2h" : "compute";
    char words[96];
    snprintf(words, sizeof words, "{\"do\":\"lock\",\"act\":\"unit\",\"unit\":\"%s\"}\n", unit);
    if (fd < 0 && !attach()) return give_up("the daemon is gone, or serves another process of this program");
    const char *line = say(words) ? answer() : NULL;
    if (!line) return give_up("the daemon does not answer");
    if (!strstr(line, "\"wait\":true")) return true;
    if (listen_for(in_ms(UNIT_MS))) return true;
    return give_up("a unit did not come within 10 s, its owner may have been stopped");
}

/* Wait until no other thread owns a unit. */
static bool is_next(void) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += UNIT_MS / 1000;
    while (taken && hw_load(&hw_units))
        if (pthread_cond_timedwait(&free_again, &lock, &end) == ETIMEDOUT) return give_up("a thread ended with a unit");
    return hw_load(&hw_units);
}

bool hw_unit_take(char kind) {
    if (mine || !hw_load(&hw_units)) return false;
    HW_HOLD(&lock);
    if (!is_next()) return false;
    taken = true;
    mine = ask(kind);
    if (!mine) taken = false;
    return mine;
}

void hw_unit_give(bool late) {
    HW_HOLD(&lock);
    mine = taken = false;
    if (late) give_up("work was not done 2 s after it was launched");
    else if (!hw_load(&hw_units)) hang_up();
    else if (say("{\"do\":\"lock\",\"act\":\"give back\"}\n")) owed++;
    else give_up("the daemon is gone");
    pthread_cond_signal(&free_again);
}

size_t hw_unit_chunk(void) { return hw_load(&hw_units) ? chunk : 0; }
