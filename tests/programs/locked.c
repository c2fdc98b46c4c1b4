/* Locks all its memory, now and later, as audio and real-time programs do: 0 if it may. */
#include <stdio.h>
#include <sys/mman.h>

int main(void) {
    if (!mlockall(MCL_CURRENT | MCL_FUTURE)) return 0;
    perror("locked");
    return 1;
}
