#define _GNU_SOURCE
#include "gate.h"
#include "survey.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* A daemon that has shown no sign of life for this long is taken for stopped. */
#define STALE_NS 400000000ull
/* How often a waiting program looks whether it is. */
#define LOOK_MS 50
/* How long to leave a missing daemon alone before trying again. */
#define RETRY_NS 300000000ull
/* How long a daemon may take to answer, and how long one that did not is left alone. */
#define HELLO_MS 1000
#define SULK_NS 10000000000ull
/* How long a turn is waited for without sleeping: about what a wake-up takes. */
#define SPIN_NS 40000ull
/* Programs expect the low descriptors for themselves. */
#define HIGH_FD 200

static char socket_path[108];
static char token[HW_TOKEN];
static bool verbose, enabled;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hw_channel *channels;

uint64_t hw_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void say(const char *text) {
    static bool said;
    if (!verbose || __atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) return;
    ssize_t ignored = write(2, text, strlen(text));
    (void)ignored;
}

static uint64_t socket_of(int fd) {
    struct stat info;
    return fstat(fd, &info) || !S_ISSOCK(info.st_mode) ? 0 : (uint64_t)info.st_ino;
}

/* Programs that close every descriptor, as daemons do, close ours, and the number is soon another
 * file's: nothing may be said to that. */
static bool is_ours(const struct hw_channel *c) { return c->fd >= 0 && socket_of(c->fd) == c->socket; }

static void forget(struct hw_channel *c) {
    if (is_ours(c)) close(c->fd);
    c->fd = -1;
    if (c->turns && c->page) __atomic_store_n(&c->page->open, 1, __ATOMIC_SEQ_CST); /* what waits there may go */
    if (!c->turns) {
        if (c->daemon) munmap((void *)c->daemon, 4096);
        if (c->page) munmap((void *)c->page, 4096);
        c->daemon = NULL;
        c->page = NULL;
    }
    c->leased = c->granted = false;
    c->retry_ns = hw_now() + RETRY_NS;
}

/* A forked child must not speak on its parent's connections. */
static void in_child(void) {
    int error = errno;
    pthread_mutex_init(&lock, NULL);
    for (struct hw_channel *c = channels; c; c = c->next) {
        if (c->turns) c->page = NULL; /* what its parent wrote is its parent's, whose work may wait there */
        forget(c);
        c->daemon = NULL;
        c->page = NULL;
        c->retry_ns = 0;
    }
    errno = error;
}

void hw_gate_init(void) {
    const char *path = getenv("HEADWAY_SOCKET"), *run = getenv("HEADWAY_TOKEN");
    verbose = getenv("HEADWAY_VERBOSE") != NULL;
    if (!path || strlen(path) >= sizeof socket_path) return;
    strcpy(socket_path, path);
    if (run && strlen(run) < sizeof token) strcpy(token, run);
    enabled = true;
    pthread_atfork(NULL, NULL, in_child);
}

bool hw_gate_enabled(void) { return enabled; }

struct hw_channel *hw_channel_take(void *context) {
    pthread_mutex_lock(&lock);
    struct hw_channel *c = channels;
    while (c && c->context != context) c = c->next;
    if (!c) {
        for (c = channels; c && (c->context || c->users); c = c->next) {} /* one to use again */
        if (c) {
            struct hw_channel *next = c->next;
            memset(c, 0, sizeof *c);
            c->next = next;
        } else if ((c = calloc(1, sizeof *c))) {
            c->next = channels;
            channels = c;
        }
        if (c) {
            c->fd = -1;
            c->context = context;
        }
    }
    if (c) c->users++;
    pthread_mutex_unlock(&lock);
    return c;
}

void hw_channel_drop(struct hw_channel *c) {
    pthread_mutex_lock(&lock);
    if (c->users > 0 && --c->users == 0 && !c->context) forget(c);
    pthread_mutex_unlock(&lock);
}

void hw_channel_end(void *context) {
    pthread_mutex_lock(&lock);
    for (struct hw_channel *c = channels; c; c = c->next)
        if (c->context == context) {
            c->context = NULL;
            if (!c->users) forget(c);
        }
    pthread_mutex_unlock(&lock);
}

/* Only pages that stay can be written by a thread that does not use the channel. */
void hw_gate_show_unknown(uint32_t count) {
    if (!enabled) return;
    pthread_mutex_lock(&lock);
    for (struct hw_channel *c = channels; c; c = c->next)
        if (c->turns && c->page) c->page->unknown = count;
    pthread_mutex_unlock(&lock);
}

static bool wait_readable(int fd, int timeout_ms) {
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
    if (fstat(fd, &info) || info.st_size < 4096) return NULL;
    void *page = mmap(NULL, 4096, protection, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

static bool greet(struct hw_channel *c) {
    struct hw_hello hello = {.magic = HW_MAGIC, .version = HW_VERSION};
    strncpy(hello.name, program_invocation_short_name, HW_NAME - 1);
    memcpy(hello.token, token, HW_TOKEN);
    if (send(c->fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) return false;
    if (!wait_readable(c->fd, HELLO_MS)) return false;
    struct hw_welcome welcome;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {&welcome, sizeof welcome};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(c->fd, &message, MSG_CMSG_CLOEXEC) != sizeof welcome) return false;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return false;
    int fds[2];
    memcpy(fds, CMSG_DATA(head), sizeof fds);
    const volatile struct hw_daemon_page *daemon = map_page(fds[0], PROT_READ);
    volatile struct hw_client_page *page = map_page(fds[1], PROT_READ | PROT_WRITE);
    close(fds[0]);
    close(fds[1]);
    bool known = welcome.magic == HW_MAGIC && welcome.version == HW_VERSION;
    if (known && daemon && page && daemon->magic == HW_MAGIC) {
        c->daemon = daemon;
        c->page = page;
        hw_survey_links();
        page->unknown = hw_survey_unknown();
        return true;
    }
    if (daemon) munmap((void *)daemon, 4096);
    if (page) munmap((void *)page, 4096);
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

static bool tell(struct hw_channel *c, uint32_t type, bool frame);

static bool connected(struct hw_channel *c) {
    if (c->fd >= 0) return true;
    uint64_t now = hw_now();
    if (c->retry_ns > now) return false;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, socket_path);
    c->fd = open_socket();
    c->socket = c->fd < 0 ? 0 : socket_of(c->fd);
    if (c->fd >= 0 && !connect(c->fd, (struct sockaddr *)&address, sizeof address) && greet(c) &&
        (!c->turns || tell(c, HW_TURNS, false))) {
        say("headway: this program's GPU work is managed\n");
        return true;
    }
    forget(c);
    if (hw_now() - now > HELLO_MS * 100000ull) c->retry_ns += SULK_NS; /* it is there but hangs */
    say("headway: no daemon answers, this program goes unmanaged\n");
    return false;
}

static bool say_to_daemon(struct hw_channel *c, const struct hw_message *m) {
    ssize_t n = -1;
    if (is_ours(c))
        do n = send(c->fd, m, sizeof *m, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
    if (n == sizeof *m) return true;
    forget(c);
    return false;
}

static bool tell(struct hw_channel *c, uint32_t type, bool frame) {
    struct hw_message m = {
        .type = type, .seq = c->seq, .signature = c->signature, .submit_ns = c->submit_ns,
        .start_ns = c->start_ns, .finish_ns = c->finish_ns, .units = c->units, .frame = frame};
    if (c->fd < 0) return false; /* and a new try is not put off */
    return say_to_daemon(c, &m);
}

bool hw_gate_tell(struct hw_channel *c, uint32_t type, bool last) { return tell(c, type, last); }

static bool is_stale(const struct hw_channel *c, uint64_t now) {
    uint64_t beat = __atomic_load_n(&c->daemon->heartbeat_ns, __ATOMIC_RELAXED);
    return now > beat && now - beat > STALE_NS;
}

/* Under a lease: say that the GPU is in use, then look again. The daemon does it the other way round
 * (take the lease, then look whether the GPU is in use), so one of the two notices the other. */
static bool take_lease(struct hw_channel *c) {
    if (!__atomic_load_n(&c->daemon->lease, __ATOMIC_ACQUIRE)) return false;
    if (!c->page->busy) __atomic_store_n(&c->page->busy, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&c->daemon->lease, __ATOMIC_SEQ_CST);
}

static void publish(struct hw_channel *c) {
    uint32_t n = c->methods < HW_MATRIX ? c->methods : HW_MATRIX;
    for (uint32_t i = 0; i < n; i++) {
        c->page->matrix[i].method = c->matrix[i].method;
        c->page->matrix[i].count = c->matrix[i].count;
        c->page->matrix[i].size = c->matrix[i].size;
    }
    c->page->methods = n;
}

bool hw_gate_owes(const struct hw_channel *c) {
    return c->page && c->page->busy && !__atomic_load_n(&c->daemon->lease, __ATOMIC_ACQUIRE);
}

void hw_gate_settle(struct hw_channel *c) {
    if (!c->page || !c->page->busy) return;
    c->leased = false;
    __atomic_store_n(&c->page->busy, 0, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&c->daemon->lease, __ATOMIC_SEQ_CST)) tell(c, HW_RELEASE, false);
}

/* A turn's grant is a lease: it shows in the page before the message has woken anybody. */
static bool spin(const struct hw_channel *c) {
    for (uint64_t end = hw_now() + SPIN_NS; hw_now() < end;)
        for (int i = 0; i < 16; i++)
            if (__atomic_load_n(&c->daemon->lease, __ATOMIC_ACQUIRE)) return true;
    return false;
}

/* Grants that were seen in the page before they were read. */
static void read_old_grants(const struct hw_channel *c) {
    struct hw_message old;
    while (is_ours(c) && recv(c->fd, &old, sizeof old, MSG_DONTWAIT) == sizeof old) {}
}

/* Asks the daemon and waits for its answer; false: it is gone or stopped, so go on without it. */
static bool ask(struct hw_channel *c) {
    c->seq++;
    publish(c);
    if (c->turns) read_old_grants(c);
    if (!tell(c, HW_SUBMIT, false)) return false;
    if (c->turns && spin(c)) return true;
    for (;;) {
        if (!wait_readable(c->fd, LOOK_MS)) {
            if (!is_stale(c, hw_now())) continue;
            tell(c, HW_WITHDRAW, false);
            return false;
        }
        if (!is_ours(c)) {
            forget(c);
            return false;
        }
        struct hw_message answer;
        ssize_t n = recv(c->fd, &answer, sizeof answer, MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n != sizeof answer) {
            forget(c);
            return false;
        }
        if (answer.type == HW_GRANT && answer.seq == c->seq) return true;
    }
}

/* A daemon without a sign of life is stopped, or dead and another one may have come. */
static bool still_there(struct hw_channel *c) {
    char byte;
    if (!is_stale(c, c->submit_ns)) return true;
    if (c->turns) read_old_grants(c); /* what it said while it lived would hide its end */
    if (!is_ours(c) || recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0) {
        forget(c);
        c->retry_ns = 0;
        return connected(c);
    }
    return false;
}

void hw_gate_enter(struct hw_channel *c) {
    c->submit_ns = c->start_ns = hw_now();
    c->granted = c->leased = false;
    if (!connected(c) || !still_there(c)) return;
    c->leased = take_lease(c);
    if (c->leased) return;
    hw_gate_settle(c); /* if the lease was taken back between its two looks */
    if (c->fd < 0) return;
    c->granted = ask(c);
    c->start_ns = hw_now();
}

/* ---- turns --------------------------------------------------------------------------------- */

bool hw_gate_reach(struct hw_channel *c, uint64_t now_ns) {
    c->submit_ns = now_ns;
    return connected(c) && still_there(c);
}

bool hw_gate_is_silent(const struct hw_channel *c) { return !c->daemon || is_stale(c, hw_now()); }

bool hw_gate_take_lease(struct hw_channel *c) { return take_lease(c); }

bool hw_gate_ask(struct hw_channel *c) { return ask(c); }

/* The daemon does it the other way round: it says that it no longer looks, and then looks once more. */
static bool is_seen(const struct hw_channel *c) {
    return c->fd >= 0 && __atomic_load_n(&c->daemon->looks, __ATOMIC_SEQ_CST);
}

bool hw_gate_announce(struct hw_channel *c) {
    c->seq++;
    c->units = __atomic_add_fetch(&c->page->asks, 1, __ATOMIC_SEQ_CST);
    bool known = is_seen(c);
    if (!known) {
        read_old_grants(c);
        known = tell(c, HW_SUBMIT, false);
    }
    c->units = 0;
    return known;
}

void hw_gate_rest(struct hw_channel *c) {
    if (!is_seen(c)) tell(c, HW_RELEASE, true);
}

void hw_gate_frame(struct hw_channel *c) {
    if (!c->page) return;
    c->page->frames++;
    c->page->unknown = hw_survey_unknown();
}

uint32_t hw_gate_server(const struct hw_channel *c) {
    return c->daemon ? __atomic_load_n(&c->daemon->server, __ATOMIC_RELAXED) : 0;
}

void hw_gate_tell_server(struct hw_channel *c, bool enter) {
    struct hw_message m = {.type = enter ? HW_ENTER : HW_LEAVE, .seq = c->seq};
    if (c->fd >= 0) say_to_daemon(c, &m);
}

bool hw_gate_must_wait(const struct hw_channel *c) { return c->granted; }

void hw_gate_leave(struct hw_channel *c, bool frame, bool done) {
    c->finish_ns = hw_now();
    if (c->granted) {
        c->granted = false;
        tell(c, HW_COMPLETE, frame);
        return;
    }
    if (!c->page) return;
    if (!c->leased) {
        c->page->free_groups++;
        return;
    }
    c->page->passed++;
    uint64_t took_ns = c->finish_ns - c->submit_ns;
    c->page->used_ns += took_ns > c->expected_ns ? took_ns : c->expected_ns;
    c->page->last_ns = c->finish_ns;
    if (done) hw_gate_settle(c);
}
