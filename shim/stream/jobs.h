/* Jobs and pauses of a program that takes turns, as the daemon is to know them. Nothing is decided here: which pauses
 * end a job, and after which of them the daemon is told, it says itself. All with the lock of lanes.h held. */
#ifndef HEADWAY_JOBS_H
#define HEADWAY_JOBS_H

#include <stdbool.h>
#include <stdint.h>

/* The program wants the GPU; after a pause that ends it. */
void hw_job_works(uint64_t now);
/* Whether it works since its last pause, as the page says, too. */
bool hw_job_is_on(void);
/* All of its work is done, and it has seen that: a pause begins. */
void hw_job_pauses(uint64_t now);
/* It waited for so long for the GPU (no lock is needed to say that), or at the gate. */
void hw_job_waited(uint64_t ns);
void hw_job_held(uint64_t ns);
/* Whether the daemon wants to hear of this pause. */
bool hw_job_tells(void);
/* The program says itself what a job is. */
void hw_job_begin(uint64_t now, uint64_t deadline_ns);
/* Whether there was work in it, on this GPU. */
bool hw_job_worked(void);
/* Whether the daemon can hear of its end. A job without any work is one, too, if it is to `count`. */
bool hw_job_end(uint64_t now, bool count);
/* The page is another one: nothing is in it yet. */
void hw_job_forget(void);

#endif
