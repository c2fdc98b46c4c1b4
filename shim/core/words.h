/* Lines for the person who started the program, on its standard error. */
#ifndef HEADWAY_WORDS_H
#define HEADWAY_WORDS_H

/* Remembers what standard error is, before the program can put something else there. */
void hw_words_begin(void);
/* One line with the program's name. Nothing is written to anything but the standard error of the beginning, nothing
 * if that does not take it at once, and nothing under `headway run -q`. */
void hw_warn(const char *what);

#endif
