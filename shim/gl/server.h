/* The window server a program shows its frames through. */
#ifndef HEADWAY_SERVER_H
#define HEADWAY_SERVER_H

/* The program opened or closed an X display; `opener` is Xlib's own function. */
void hw_display_opened(void *x, void *opener);
void hw_display_closed(void *x);
/* An EGL display was made from this, which may be an X display. */
void hw_display_made(void *egl, void *x);
/* Returns when the server has done what was asked on this display, of EGL or of X, so far. */
void hw_round_trip(void *display);

#endif
