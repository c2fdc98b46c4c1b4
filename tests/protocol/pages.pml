/* The page protocol: how a program that takes turns and the daemon hand the GPU over by two shared pages.
 *
 * Who does what here is, with the same words,
 *     Program   shim/stream/turn.c and pieces.c, shim/core/gate.c
 *     Books     keep_books() in pieces.c and the thread in watchdog.c
 *     Daemon    engine/turns/arbiter.py, ends.py and leases.py, on live/wire/pages.py
 *     Gpu       stream memory operations: a piece waits for `gate`, then counts itself in `opened` and in `closed`
 *     Other     somebody else who wants the GPU
 * Each statement is one access to a page or one message; what the daemon alone knows changes with it. There are no
 * timers but those named below, so whatever only a timer would mend is found as a program that waits for ever.
 *
 * Variants: -DPIECES (work waits on the GPU itself), else the program waits on the CPU.
 *     -DDEATHS: the program dies before any of its steps. -DDAEMON_DIES, -DDAEMON_STOPS: the same of the daemon; a
 *     stopped one goes on later.
 * Mistakes, each of which spin must find (tests/unit/test_page_model.py):
 *     -DNO_SECOND_LOOK         the program says that it is busy and does not look at the lease again
 *     -DLOOKS_FIRST            the daemon looks whether the program is busy, and takes the lease then
 *     -DNO_LAST_LOOK           the daemon says that it polls no longer and does not look once more
 *     -DLOOKS_BEFORE_RESTING   the program looks who waits, and says then that it is not busy
 *     -DNOBODY_OPENS           nobody opens the gate when the daemon is dead
 *     -DRESTED_BEFORE          the daemon takes the end of the job before for that of a turn that it has taken back
 *     -DASKED_BEFORE           the daemon hears a program ask that has seen its lease since, and ends its turn
 *     -DDEAD_KEEP_IT           a program that died keeps its turn */

#ifndef JOBS
#define JOBS 2
#endif
#ifndef OTHERS
#define OTHERS 1
#endif
#ifndef SPINS
#define SPINS 1
#endif
#ifndef GROUPS
#define GROUPS 2 /* pieces of a job */
#endif

mtype = { SUBMIT, RELEASE, REST, WITHDRAW };

/* Words of the daemon's page, and `gate`, which it writes in the program's (`open`). */
bool lease, waits, polled, wanted, gate;
/* Words of the program's page. */
bool busy, gated;
byte asks, given, opened, closed;

#ifndef QUEUE
#define QUEUE 2 /* messages under way; who sends one more waits */
#endif
chan up = [QUEUE] of { mtype, byte }; /* with the number of a group, or, in pieces, of `asks` */
byte granted; /* the number in the last message to the program */

/* What really is: nobody in the system reads these. */
bool using;        /* the program has work on the GPU, by a lease */
bool other_uses;   /* somebody else has the GPU by the daemon's word */
bool program_dead, program_done, daemon_dead, stopped, was_stopped;
bool other_asks, other_done;
byte known; /* of `asks` those that the daemon has seen */
bool locked; /* the program's lock */

#define lost (daemon_dead || stopped)
#define must_not_meet assert(!(using && other_uses) || was_stopped || daemon_dead)
#define pending (gated && given != opened)
#define trails (opened != closed)
#ifdef PIECES
#define drains (busy && trails)
#else
#define drains busy
#endif

/* ---- the program --------------------------------------------------------------------------------------------- */

inline say(word, with) {
    if
    :: daemon_dead -> skip
    :: up ! word(with)
    fi
}

/* hw_gate_announce */
inline announce() {
    asks = asks % 7 + 1;
    if
    :: polled -> skip
    :: else -> say(SUBMIT, asks)
    fi
}

/* hw_turn_ask_again; it is done at most once in a millisecond, so it may be left out: Books see to that then */
inline ask_again() {
    if
    :: lease -> skip
    :: else ->
        if
        :: waits -> skip
        :: else ->
            if
            :: announce()
            :: skip
            fi
        fi
    fi
}

/* let_go: the turn is over by the program's word */
inline let_go(word) {
    gated = false;
#ifdef LOOKS_BEFORE_RESTING
    others = wanted || !lease;
    busy = false;
#else
    busy = false;
    others = wanted;
    others = others || !lease;
#endif
    if
    :: others && word == REST ->
        if
        :: polled -> skip
        :: else -> say(REST, 0)
        fi
    :: others && word != REST -> say(RELEASE, 0)
    :: else -> skip
    fi;
    others = false
}

proctype Program() {
    byte jobs = JOBS, groups, seq;
    bool others, took;
    {
        do
        :: jobs == 0 -> break
        :: else ->
            jobs--;
#ifdef PIECES
            groups = GROUPS;
            do
            :: groups == 0 -> break
            :: else ->
                groups--;
                locked = true;
                if /* begin_pieces */
                :: lost -> locked = false; goto done /* from here on it goes without asking */
                :: else -> skip
                fi;
                if
                :: busy && gated -> skip
                :: else ->
                    gated = true;
                    took = false;
                    if /* hw_gate_take_lease */
                    :: lease ->
                        busy = true;
#ifdef NO_SECOND_LOOK
                        took = true
#else
                        took = lease
#endif
                    :: else -> skip
                    fi;
                    if
                    :: took -> took = false
                    :: else -> busy = true; announce()
                    fi
                fi;
                given++;
                ask_again();
                locked = false
            od;
            (closed == given); /* the driver waits for the GPU */
            locked = true;
            let_go(REST);
            locked = false
#else
again:
            if
            :: lost -> goto done
            :: else -> skip
            fi;
            took = false;
            if
            :: lease ->
                busy = true;
#ifdef NO_SECOND_LOOK
                took = true
#else
                took = lease
#endif
            :: else -> skip
            fi;
            if
            :: took -> took = false
            :: else ->
                if
                :: busy -> /* hw_turn_drain: nothing of it is in flight */
                    if
                    :: lease -> skip
                    :: else -> let_go(RELEASE)
                    fi
                :: else ->
                    seq = (seq + 1) % 4;
                    say(SUBMIT, seq);
                    if
                    :: lease -> skip
                    :: granted == seq -> skip
                    :: daemon_dead -> goto done
                    :: stopped -> say(WITHDRAW, seq); goto done
                    fi
                fi;
                goto again
            fi;
            d_step { using = true; must_not_meet };
            using = false;
            let_go(REST)
#endif
        od;
done:
        program_done = true
    } unless { program_dead }
}

#ifdef PIECES
/* The watchdog's thread: books are kept for a program that says nothing, and the gate opens when the daemon is silent. */
proctype Books() {
    {
end:    do
        :: !locked && pending && !lease && !waits && empty(up) && (!polled || asks == known) && !lost ->
            announce()
#ifndef NOBODY_OPENS
        :: lost && !gate -> gate = true
#endif
        od
    } unless { program_dead }
}

proctype Gpu() {
    {
end:    do
        :: d_step {
                given != opened && gate -> /* it goes on from its gate, */
                assert(!other_uses || was_stopped || daemon_dead)
            };
            opened++ /* and counts that a little later */
        :: trails -> closed++
        od
    } unless { program_dead }
}
#endif

/* ---- the daemon ------------------------------------------------------------------------------------------------ */

/* Pages.set_lease */
inline set_lease(on) {
#ifdef PIECES
    lease = on;
    gate = on
#else
    lease = on
#endif
}

/* leases.end and Online.end */
inline end_turn() {
    set_lease(false);
    waits = false;
    d_step { online = false; revoked = false }
}

inline submit(heard) {
    if
    :: online -> end_turn()
    :: else -> skip
    fi;
    d_step { ready = true; awaited = heard };
    waits = true
}

/* _part: what waits on the GPU asks for the next turn, though its program says nothing */
inline part() {
    end_turn();
    waiting = pending;
    if
    :: waiting -> known = asks; submit(false)
    :: else -> skip
    fi
}

inline revoke() {
#ifdef LOOKS_FIRST
    uses = busy;
    set_lease(false);
#else
    set_lease(false);
    uses = busy;
#endif
    revoked = true;
    if
    :: uses -> skip
    :: else -> end_turn()
    fi
}

/* leases.take_idle, and the same of a turn that was taken back: whether the program goes on at this moment */
inline hold_still() {
    goes = true;
    if
    :: revoked ->
#ifndef RESTED_BEFORE
        goes = !busy
#else
        skip
#endif
    :: else ->
        set_lease(false);
        if
        :: busy -> set_lease(true); goes = false
        :: else -> skip
        fi
    fi
}

/* Arbiter.asked */
inline asked() {
#ifdef PIECES
    if
    :: number == known -> skip
    :: number != known && revoked && pending -> skip /* will_ask */
    :: number != known && !(revoked && pending) ->
        known = number;
        if
        :: gated && online && !revoked -> skip /* goes_again */
        :: else -> submit(true)
        fi
    fi
#else
    goes = true;
#ifndef ASKED_BEFORE
    if /* who waits for an answer is not busy: it asked before it saw its lease */
    :: online -> hold_still()
    :: else -> skip
    fi;
#endif
    if
    :: goes -> number_asked = number; submit(true)
    :: else -> skip
    fi
#endif
}

/* Arbiter._released */
inline released(rests) {
    goes = true;
    if
    :: ready ->
        if
        :: busy -> goes = false
        :: else -> ready = false; waits = false
        fi
    :: else -> skip
    fi;
    if
    :: goes && online -> hold_still()
    :: else -> skip
    fi;
    if
    :: goes && online -> part()
    :: else -> skip
    fi;
    if
    :: goes && rests && !ready && !online && !other_uses && !other_ready -> /* _maybe_lease */
        online = true;
        set_lease(true)
    :: else -> skip
    fi
}

/* Arbiter._see: what the page alone says */
inline see() {
    if
    :: asks != known && gated && lease && online && !revoked -> known = asks
    :: asks != known && !(gated && lease && online && !revoked) && busy && !(revoked && pending) ->
        known = asks;
        submit(false)
    :: !busy && ((online && (revoked || wanted)) || (ready && !awaited)) -> released(true)
    :: else -> skip
    fi
}

/* _let_go */
inline go() {
    d_step { ready = false; online = true; revoked = false };
    set_lease(true);
    if
    :: awaited -> d_step { awaited = false; granted = number_asked }
    :: else -> skip
    fi
}

/* Arbiter.pump: reviews, then decisions */
inline pump() {
    if
    :: online ->
        wanted = other_ready;
        if
        :: revoked ->
            if
            :: !drains -> part()
            :: else -> skip
            fi
        :: !revoked && other_ready ->
            if
            :: revoke() /* somebody more important */
            :: true -> /* an equal, or less: as long as its work goes on */
                if
                :: busy -> skip
                :: else -> revoke()
                fi
            fi
        :: else -> skip
        fi
    :: else -> skip
    fi;
    if
    :: !online && !other_uses && other_ready -> d_step { other_ready = false; other_uses = true }
    :: !online && !other_uses && ready -> go()
    :: else -> skip
    fi
}

#ifdef DAEMON_STOPS
proctype Daemon() provided (!stopped) {
#else
proctype Daemon() {
#endif
    bool online, revoked, ready, awaited, looks, uses, goes, waiting, other_ready, buried;
    byte spins = SPINS, number, number_asked;
    mtype said;
    {
end:    do
        :: up ? said(number) ->
            if
            :: buried -> skip
            :: !buried && said == SUBMIT -> asked()
            :: !buried && said == RELEASE -> released(false)
            :: !buried && said == REST -> released(true)
            :: !buried && said == WITHDRAW ->
                if
                :: ready && number == number_asked -> ready = false; waits = false
                :: else -> skip
                fi
            fi;
            pump();
            d_step { said = 0; number = 0; goes = false; uses = false; waiting = false }
        :: other_asks -> other_asks = false; other_ready = true; pump()
        :: other_done -> d_step { other_done = false; other_uses = false }; pump()
        /* the timer by which a turn that was taken back is looked at again (DRAIN_NS) */
        :: online && revoked && !drains -> pump()
        :: !looks && spins > 0 && !program_done -> spins--; looks = true; polled = true
        :: looks && !buried && ((asks != known && !(revoked && pending)) ||
                     (!busy && ((online && (revoked || wanted)) || (ready && !awaited)))) -> see(); pump()
        :: looks ->
            looks = false;
            polled = false;
#ifndef NO_LAST_LOOK
            if
            :: buried -> skip
            :: else -> see(); pump()
            fi
#else
            skip
#endif
#ifndef DEAD_KEEP_IT
        :: program_dead && !buried ->
            buried = true;
            ready = false;
            if
            :: online -> end_turn()
            :: else -> skip
            fi;
            pump()
#endif
        od
    } unless { daemon_dead }
}

/* ---- everybody else -------------------------------------------------------------------------------------------- */

proctype Other() {
    byte times = OTHERS;
    {
        do
        :: times == 0 -> break
        :: else ->
            times--;
            other_asks = true;
            d_step { other_uses -> must_not_meet };
            other_done = true;
            (!other_uses)
        od
    } unless { daemon_dead }
}

proctype Fate() {
end:
    if
#ifdef DEATHS
    :: d_step { !program_done -> program_dead = true; using = false }
#endif
#ifdef DAEMON_DIES
    :: daemon_dead = true
#endif
#ifdef DAEMON_STOPS
    :: d_step { stopped = true; was_stopped = true } -> stopped = false
#endif
    :: true
    fi
}

init {
    atomic {
        run Program();
#ifdef PIECES
        run Books();
        run Gpu();
#endif
        run Daemon();
        run Other();
        run Fate()
    }
}
