/* An X client that never touches the GPU itself: it has its X server draw, and waits for it.
 *
 *     xclient [x] [y] [size] [rectangles]
 *
 * Counts its rounds into the file $FRAME_COUNT, as count.c does for GL programs. */
#include <X11/Xlib.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile uint64_t *count_rounds(void) {
    static uint64_t nowhere;
    const char *path = getenv("FRAME_COUNT");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, 4096)) return &nowhere;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return page == MAP_FAILED ? &nowhere : page;
}

int main(int argc, char **argv) {
    int x = argc > 2 ? atoi(argv[1]) : 0, y = argc > 2 ? atoi(argv[2]) : 0;
    unsigned size = argc > 3 ? (unsigned)atoi(argv[3]) : 300;
    int count = argc > 4 ? atoi(argv[4]) : 20;
    Display *display = XOpenDisplay(NULL);
    if (!display) return fprintf(stderr, "xclient: no display\n"), 1;
    Window window = XCreateSimpleWindow(display, DefaultRootWindow(display), x, y, size, size, 0, 0, 0);
    GC gc = XCreateGC(display, window, 0, NULL);
    XMapWindow(display, window);
    volatile uint64_t *rounds = count_rounds();
    for (;;) {
        for (int i = 0; i < count; i++) {
            XSetForeground(display, gc, (unsigned long)(*rounds * 77 + (uint64_t)i * 991) & 0xffffff);
            XFillRectangle(display, window, gc, i, i, size - 2 * (unsigned)i, size - 2 * (unsigned)i);
        }
        XSync(display, False);
        ++*rounds;
    }
}
