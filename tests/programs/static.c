/* Linked statically: nothing can be put before it. */
#include <stdio.h>

int main(void) {
    puts("static");
    return 3;
}
