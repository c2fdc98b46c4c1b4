/* A channel's connection with the daemon: from the socket to the pages. */
#define _GNU_SOURCE
#include "connection.h"
#include "name.h"
#include "survey.h"
#include "words.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* How long to leave a missing daemon alone before trying again. */
#define RETRY_NS 300000000ull
/* How long a daemon may take to answer, and how long one that did not is left alone. */
#define HELLO_MS 1000
#define SULK_NS 10000000000ull
/* Programs expect the low descriptors for themselves. */
#define HIGH_FD 200

static char socket_path[108];
static char token[HW_TOKEN];
static bool verbose, enabled;

/* Clocks differ between time namespaces: nothing that a daemon in another one says of times would be true here. */
static bool has_the_daemons_clock(void) {
    const char *given = getenv("HEADWAY_TIME_NAMESPACE");
    struct stat own;
    return !given || stat("/proc/self/ns/time", &own) || strtoull(given, NULL, 10) == own.st_ino;
}

bool hw_connection_init(void) {
    const char *path = getenv("HEADWAY_SOCKET"), *run = getenv("HEADWAY_TOKEN");
    verbose = getenv("HEADWAY_VERBOSE") != NULL;
    if (!path || strlen(path) >= sizeof socket_path) return false;
    strcpy(socket_path, path);
    if (run && strlen(run) < sizeof token) strcpy(token, run);
    enabled = has_the_daemons_clock() && !getenv("HEADWAY_UNITS");
    if (!has_the_daemons_clock()) hw_warn("it runs unmanaged: the daemon is in another time namespace, with another clock");
    return enabled;
}

bool hw_gate_enabled(void) { return enabled; }

static void say(const char *text) {
    static hw_int said;
    if (!verbose || hw_exchange_full(&said, true)) return;
    ssize_t ignored = write(2, text, strlen(text));
    (void)ignored;
}

static uint64_t socket_of(int fd) {
    struct stat info;
    return fstat(fd, &info) || !S_ISSOCK(info.st_mode) ? 0 : (uint64_t)info.st_ino;
}

/* Programs that close every descriptor, as daemons do, close ours, and the number is soon another
 * file's: nothing may be said to that. */
bool hw_is_ours(const struct hw_channel *c) {
    int fd = hw_load(&c->fd);
    return fd >= 0 && socket_of(fd) == c->socket;
}

void hw_forget_pages(struct hw_channel *c) {
    hw_store(&c->daemon, NULL);
    hw_store(&c->page, NULL);
}

void hw_forget(struct hw_channel *c) {
    int fd = hw_is_ours(c) ? hw_load(&c->fd) : -1;
    hw_store(&c->fd, -1);
    if (fd >= 0) close(fd);
    if (c->turns && hw_page_of(c)) hw_store_full(&hw_page_of(c)->open, 1); /* what waits there may go */
    if (!c->turns) {
        if (hw_daemon_of(c)) munmap((void *)hw_daemon_of(c), HW_PAGE);
        if (hw_page_of(c)) munmap(hw_page_of(c), HW_PAGE);
        hw_forget_pages(c);
    }
    c->leased = c->granted = false;
    c->retry_ns = hw_now() + RETRY_NS;
}

bool hw_wait_readable(int fd, int timeout_ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t end = hw_now() + (uint64_t)timeout_ms * 1000000ull;
    for (;;) {
        int n = poll(&p, 1, timeout_ms);
        if (n >= 0) return n > 0;
        uint64_t now = hw_now();
        if (errno != EINTR || now >= end) return false;
        timeout_ms = (int)((end - now) / 1000000ull) + 1;
    }
}

static void *map_page(int fd, int protection) {
    struct stat info;
    if (fstat(fd, &info) || info.st_size < HW_PAGE) return NULL;
    void *page = mmap(NULL, HW_PAGE, protection, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

static bool greet(struct hw_channel *c) {
    struct hw_hello hello = {.magic = HW_MAGIC, .version = HW_VERSION};
    hw_program_name(hello.name, sizeof hello.name);
    memcpy(hello.token, token, HW_TOKEN);
    memcpy(hello.model, c->model, HW_NAME);
    memcpy(hello.uuid, c->uuid, HW_UUID);
    memcpy(hello.pci, c->pci, HW_PCI);
    int fd = hw_load(&c->fd);
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) return false;
    if (!hw_wait_readable(fd, HELLO_MS)) return false;
    struct hw_welcome welcome;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {&welcome, sizeof welcome};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != sizeof welcome) return false;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return false;
    int fds[2];
    memcpy(fds, CMSG_DATA(head), sizeof fds);
    const struct hw_daemon_page *daemon = map_page(fds[0], PROT_READ);
    struct hw_client_page *page = map_page(fds[1], PROT_READ | PROT_WRITE);
    close(fds[0]);
    close(fds[1]);
    bool known = welcome.magic == HW_MAGIC && welcome.version == HW_VERSION;
    if (known && daemon && page && hw_load(&daemon->magic) == HW_MAGIC) {
        hw_store_release(&c->daemon, daemon);
        hw_store_release(&c->page, page);
        hw_survey_links();
        hw_store(&page->unknown, hw_survey_unknown());
        return true;
    }
    if (daemon) munmap((void *)daemon, HW_PAGE);
    if (page) munmap(page, HW_PAGE);
    return false;
}

/* Neither connecting nor saying something may hang when the daemon is stopped. */
static int open_socket(void) {
    struct timeval patience = {.tv_usec = 200000};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0) return fd;
    close(fd);
    return high;
}

bool hw_say(struct hw_channel *c, const struct hw_message *m) {
    ssize_t n = -1;
    if (hw_is_ours(c))
        do n = send(hw_load(&c->fd), m, sizeof *m, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
    if (n == sizeof *m) return true;
    hw_forget(c);
    return false;
}

/* Whoever listens must be of this user, or root, as `live/wire/paths.py` has it. */
bool hw_is_trusted(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && (peer.uid == geteuid() || peer.uid == 0);
}

bool hw_connected(struct hw_channel *c) {
    if (hw_load(&c->fd) >= 0) return true;
    uint64_t now = hw_now();
    if (c->retry_ns > now) return false;
    const struct hw_message turns = {.type = HW_TURNS};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, socket_path);
    int fd = open_socket();
    c->socket = fd < 0 ? 0 : socket_of(fd);
    hw_store(&c->fd, fd);
    bool there = fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address) && hw_is_trusted(fd);
    if (there && greet(c) && (!c->turns || hw_say(c, &turns))) {
        say("headway: this program's GPU work is managed\n");
        return true;
    }
    hw_forget(c);
    if (hw_now() - now > HELLO_MS * 100000ull) c->retry_ns += SULK_NS; /* it is there but hangs */
    if (there && hw_now() - now < HELLO_MS * 1000000ull)
        say("headway: the daemon refuses this program, which goes unmanaged: no room, or another version of Headway\n");
    else
        say("headway: no daemon answers, this program goes unmanaged\n");
    return false;
}
