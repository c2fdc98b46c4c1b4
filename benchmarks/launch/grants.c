/* A plain server of grants, as fast as one can be written simply: whoever asks waits in a queue, and one at a time is
 * granted until it says that it is done. No priorities, no budgets, no deaths; what Headway's daemon is compared with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST = 1 << 16, EVENTS = 256 };

static int queue[MOST];
static unsigned head, tail;
static int holder = -1;

static void decide(void) {
    while (holder < 0 && head != tail) {
        int next = queue[head++ % MOST];
        if (send(next, "g", 1, MSG_NOSIGNAL) == 1) holder = next;
    }
}

static void serve(int fd) {
    char word[16];
    ssize_t n = recv(fd, word, sizeof word, 0);
    if (n <= 0) {
        if (holder == fd) holder = -1;
        close(fd);
    } else if (word[0] == 'a') {
        queue[tail++ % MOST] = fd;
    } else if (holder == fd) {
        holder = -1;
    }
    decide();
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct epoll_event event = {.events = EPOLLIN}, found[EVENTS];
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) return 2;
    strcpy(address.sun_path, argv[1]);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0), poll = epoll_create1(0);
    event.data.fd = listener;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) return 1;
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(poll, found, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (found[i].data.fd != listener) {
                serve(found[i].data.fd);
                continue;
            }
            event.data.fd = accept(listener, NULL, NULL);
            if (event.data.fd >= 0) epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event);
        }
    }
}
