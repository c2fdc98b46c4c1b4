/* What a program is called. */
#ifndef HEADWAY_NAME_H
#define HEADWAY_NAME_H

#include <stddef.h>

/* The program's short name; of a Python program the file name of its script, or the module after -m. Ends with a zero. */
void hw_program_name(char *name, size_t size);

#endif
