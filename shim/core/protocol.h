/* What a program and the daemon say to each other. src/headway/live/wire/protocol.py says the same.
 *
 * One Unix SOCK_SEQPACKET connection per channel (a GL context). All numbers are little-endian and
 * naturally aligned; every message has a fixed size, and one of another size ends the connection.
 * Times are CLOCK_MONOTONIC nanoseconds, which all processes of a machine share. */
#ifndef HEADWAY_PROTOCOL_H
#define HEADWAY_PROTOCOL_H

#include "atomics.h"

#define HW_MAGIC 0x59574448u /* "HDWY" */
#define HW_VERSION 3u
#define HW_NAME 64
#define HW_TOKEN 64
#define HW_LANES 64
#define HW_PAUSES 48
#define HW_JOBS 32

/* First message of a client. Who it is comes from the kernel; the name is only a name. */
struct hw_hello {
    uint32_t magic, version;
    char name[HW_NAME];   /* of the program */
    char token[HW_TOKEN]; /* what `headway run` was told, kept by the daemon under this token */
};

/* The answer, with two file descriptors: the daemon's page (read-only) and the client's page. */
struct hw_welcome {
    uint32_t magic, version;
    uint32_t channel, reserved;
};

enum hw_type {
    HW_SUBMIT = 1,   /* client: a group waits at the gate */
    HW_COMPLETE = 2, /* client: the granted group is done */
    HW_RELEASE = 3,  /* client: the lease that was taken back is no longer used */
    HW_WITHDRAW = 4, /* client: it went without a grant (the daemon did not answer) */
    HW_ENTER = 5,    /* client: it asks a server for something: `units` is its pid, 0 its X server's */
    HW_LEAVE = 6,    /* client: the server has answered */
    HW_TURNS = 7,    /* client: its groups are turns: a grant is a lease, which it gives back with RELEASE,
                        `frame` saying that it has nothing more to do for now */
    HW_GRANT = 16,   /* daemon: this group may go */
};

struct hw_message {
    uint32_t type;
    uint32_t seq;       /* of the group; a grant names the group it is for */
    uint64_t signature; /* hash over methods and data sizes */
    uint64_t submit_ns, start_ns, finish_ns;
    uint64_t units;  /* data sizes added up; of a turn that is not waited for: which of the page's `asks` it is */
    uint32_t frame;  /* the group ends a frame */
    uint32_t passed; /* groups that went under a lease since the last message */
};

/* What a swap asks of a window server, as the daemon wants it done. */
enum hw_server {
    HW_AWAIT = 1, /* wait until the server has answered, with the group still open: it pays for that */
    HW_TELL = 2,  /* say enter before and leave after it */
    HW_YIELD = 4, /* end the group before: the server needs the GPU itself to answer */
};

/* What is wanted of a turn that others wait for. */
enum hw_wanted {
    HW_ITS_END = 1,  /* to be told when its program has seen that all is done, */
    HW_ITS_MARK = 2, /* and before, by the GPU: who waits may go on beside the rest */
};

/* Written by the daemon alone. The client maps it read-only. */
struct hw_daemon_page {
    hw_u32 magic, version;
    hw_u64 heartbeat_ns;
    hw_u32 lease;  /* not 0: pass without asking; each lease is another number */
    hw_u32 server; /* of enum hw_server; 0: a swap concerns nobody else */
    hw_u64 split_ns; /* groups of more than this are split; 0: never */
    /* for turns */
    hw_u64 window_ns;   /* no more predicted work than this in flight; 0: any */
    hw_u64 deadline_ns; /* of a job, from its first work; 0: none */
    hw_u32 wanted;      /* others wait: say when a turn is over; of enum hw_wanted */
    hw_u32 at_once;     /* a turn may begin with the asking for it */
    hw_u32 waits;       /* the daemon knows that a turn is wanted: it need not be asked for again */
    hw_u32 looks;       /* the daemon looks at the client's page all the time: who does not wait for an answer
                             need not say what can be seen there */
    /* for pieces */
    hw_u64 calm_ns;   /* those that are over when somebody more important is due may be so long, rather than a window;
                           0: none */
    hw_u64 due_ns;    /* when the next of them is */
    hw_u64 period_ns; /* and the one after that, so much later; 0: nobody knows */
    hw_u64 job_ns;    /* how long each has the GPU, about */
    /* for jobs */
    hw_u64 rest_ns;    /* a pause that is longer than this ends a job */
    hw_u32 tell_after; /* with its so-manieth pause a job is taken to be over: say so if that is wanted; 0: do not */
    hw_u32 unused;
};

/* A job: from the first work after a rest until the next rest. */
struct hw_job {
    hw_u64 begun_ns;    /* when the program wanted the GPU for it */
    hw_u64 ended_ns;    /* when it last had seen that all of its work is done */
    hw_u64 deadline_ns; /* as the program said; 0: it said nothing */
    hw_u32 waited_ns;   /* for how long it waited for the GPU, */
    hw_u32 held_ns;     /* and at the gate; each as far as that goes into 32 bits */
    hw_u32 groups;
    hw_u32 pauses; /* how often all of its work was done */
    hw_u32 closed; /* the program said that it is over */
    hw_u32 unused;
};

/* Written by the client. To the daemon it is a hint. */
struct hw_client_page {
    hw_u32 magic, version;
    hw_u32 busy; /* something went to the GPU under a lease and may still be there */
    hw_u32 asks; /* turns that were asked for without waiting for the answer */
    hw_u64 passed;  /* groups that went under a lease */
    hw_u64 frames;  /* frames ended */
    hw_u64 used_ns; /* GPU time of groups that went under a lease, predicted where not waited for */
    hw_u64 last_ns; /* when the last of them was done */
    hw_u64 free_groups; /* groups that went with no daemon to ask */
    hw_u64 implicit;    /* submissions by the driver that the gate did not see coming, and work that
                             went though the window was full of work that could not be done */
    hw_u64 methods;     /* entries of the matrix below */
    struct {
        hw_u32 method, count;
        hw_u64 size;
    } matrix[32]; /* of the group submitted last: which methods, how often, how much data */
    /* for turns */
    hw_u64 paused;       /* how often all of its work was done, and it had seen that */
    hw_u64 unused_too;
    hw_u32 unmarked;     /* work went that no mark stands behind yet */
    hw_u32 unknown;      /* functions for GPU work that it found and that are not hooked */
    hw_u32 issued[HW_LANES]; /* marks sent after work, by stream */
    hw_u32 done[HW_LANES];   /* marks that the GPU has written */
    /* for pieces, which wait on the GPU */
    hw_u32 gated; /* this turn is one of pieces: work may wait behind them, and the turn is still wanted when the
                       gate has closed */
    hw_u32 open;  /* not 0: pieces may begin. Written by the daemon with the lease, and closed under
                       one at times; by the client if the daemon is dead */
    hw_u64 piece_ns; /* what may be in flight of the piece to which work was added last: a window, or its longest group */
    hw_u32 given[HW_LANES];  /* pieces that each stream got so far, */
    hw_u32 ended[HW_LANES];  /* those to which nothing more is added, */
    hw_u32 opened[HW_LANES]; /* those that the GPU has begun, */
    hw_u32 closed[HW_LANES]; /* and those that it has done */
    hw_u32 waiting; /* threads that wait for the GPU: the program lives, though it says nothing */
    hw_u32 nears;   /* how often it was about to wait for all its work, */
    hw_u32 near;    /* and of which of these times the GPU has done the work before */
    /* for jobs */
    hw_u32 jobs;                  /* how many have begun */
    struct hw_job job[HW_JOBS];     /* the last of them: job n is in place n % HW_JOBS */
    hw_u32 pauses[HW_PAUSES];     /* pauses so far by how long they took: two places for each doubling, from 1 us on */
};

#endif
