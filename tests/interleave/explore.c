/* A search through all orders, each made from the beginning: coroutines, a memory that stores come to late, and choices
 * that are made again up to the last one that can be made differently. What no two threads use at once, with a store
 * among it, is no step: first nothing is, and what is found to be used by two is one from then on. */
#define _GNU_SOURCE
#include "explore.h"
#undef pthread_mutex_lock
#undef clock_gettime
#include "gate.h"
#include "own.h"
#include "turn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define THREADS 3
#define STACK (256 * 1024)
#define CHOICES 4096
#define WORDS 1024
#define STORES 64
#define MOST 40000000ul
#define START 1000000000ull

extern char __data_start[], _end[];

struct late {
    char *word;
    size_t size;
    uint64_t value;
    enum order order;
};

/* All that is not to be as it was before when an order is made: it is no part of the program's data. */
struct search {
    const struct story *story;
    ucontext_t scheduler, contexts[THREADS];
    char *stacks[THREADS];
    struct hw_here here[THREADS];
    struct hw_outside outside[THREADS];
    bool running[THREADS];
    pthread_mutex_t *wants[THREADS], *held;
    int current;
    struct late late[THREADS][STORES];
    int lates[THREADS];
    struct choice {
        unsigned char made, of;
        unsigned char who[THREADS]; /* where stores are not late: which threads could go on, */
        unsigned asleep;            /* and of which it is known that nothing new comes of that: a bit for each */
        struct step {
            const void *word;
            bool writes;
            char what[46];
        } step;
    } choices[CHOICES];
    int depth, known;
    struct {
        const char *word;
        unsigned read, written; /* a bit for each thread */
        bool shared;
    } words[WORDS];
    int used;
    bool found, exploring;
    uint64_t clock, clock_before;
    char *snapshot;
    struct hw_here here_before;
    struct hw_outside outside_before;
    struct step step; /* what the current thread does next */
};
static struct search *s;

static void copy(void *to, const void *from, size_t size) { memcpy(to, from, size); }

static uint64_t read_word(const char *word, size_t size) {
    uint64_t value = 0;
    copy(&value, word, size);
    return value;
}

void expect(bool holds, const char *what) {
    if (holds) return;
    printf("%s: %s\n", s->story->name, what);
    for (int i = 0; i < s->depth; i++) printf("  %s\n", s->choices[i].step.what);
    fflush(stdout);
    _Exit(1);
}

/* Whether others use the word while this thread does. */
static bool is_shared(const char *word, bool writes) {
    int i = 0;
    while (i < s->used && s->words[i].word != word) i++;
    if (i == s->used) {
        if (s->used == WORDS) abort();
        s->words[s->used++].word = word;
    }
    unsigned me = 1u << s->current, others;
    s->words[i].read |= me;
    if (writes) s->words[i].written |= me;
    others = (s->words[i].read | s->words[i].written) & ~me;
    bool shared = (others && s->words[i].written) || s->words[i].written & (s->words[i].written - 1);
    if (shared && !s->words[i].shared) s->words[i].shared = s->found = true;
    return s->words[i].shared;
}

static void yield(void) {
    int me = s->current;
    s->here[me] = hw_here;
    s->outside[me] = hw_outside;
    swapcontext(&s->contexts[me], &s->scheduler);
    hw_here = s->here[me];
    hw_outside = s->outside[me];
}

static void come(int thread, int at) {
    struct late *l = s->late[thread];
    copy(l[at].word, &l[at].value, l[at].size);
    memmove(&l[at], &l[at + 1], (size_t)(--s->lates[thread] - at) * sizeof *l);
}

static void come_all(int thread) {
    while (s->lates[thread]) come(thread, 0);
}

/* Whether a late store may come before those that this thread made earlier. */
static bool may_come(int thread, int at) {
    const struct late *l = s->late[thread];
    if (at && l[at].order == RELEASE) return false;
    for (int i = 0; i < at; i++)
        if (l[i].word == l[at].word) return false;
    return true;
}

static void step(const char *what, const void *word, bool writes) {
    if (!s->exploring) return;
    s->step = (struct step){word, writes, ""};
    snprintf(s->step.what, sizeof s->step.what, "thread %d %s %p", s->current, what, word);
    yield();
}

uint64_t model_load(const void *word, size_t size) {
    if (s->exploring && is_shared(word, false)) {
        step("reads", word, false);
        for (int i = s->lates[s->current]; i-- > 0;)
            if (s->late[s->current][i].word == word) return s->late[s->current][i].value;
    }
    return read_word(word, size);
}

void model_store(void *word, size_t size, uint64_t value, enum order order) {
    if (s->exploring && is_shared(word, true)) {
        step("writes", word, true);
        int me = s->current;
        if (order != FULL && s->story->delays) {
            if (s->lates[me] == STORES) abort();
            s->late[me][s->lates[me]++] = (struct late){word, size, value, order};
            return;
        }
        come_all(me);
    }
    copy(word, &value, size);
}

static void change(void *word) {
    if (!s->exploring || !is_shared(word, true)) return;
    step("changes", word, true);
    come_all(s->current);
}

uint64_t model_change(void *word, size_t size, uint64_t value, const uint64_t *expected) {
    change(word);
    uint64_t was = read_word(word, size);
    if (!expected || *expected == was) copy(word, &value, size);
    return was;
}

uint64_t model_add(void *word, size_t size, uint64_t more) {
    change(word);
    uint64_t is = read_word(word, size) + more;
    copy(word, &is, size);
    return is;
}

void model_fence(void) {
    if (s->exploring && s->lates[s->current]) step("waits for its stores", NULL, true);
    if (s->exploring) come_all(s->current);
}

int model_trylock(pthread_mutex_t *lock) {
    if (s->exploring && s->held == lock) return 1;
    s->held = lock;
    return 0;
}

int model_lock(pthread_mutex_t *lock) {
    if (s->exploring) {
        s->wants[s->current] = lock;
        step("locks", lock, true);
        s->wants[s->current] = NULL;
        come_all(s->current);
    }
    s->held = lock;
    return 0;
}

int model_unlock(pthread_mutex_t *lock) {
    if (s->exploring && s->lates[s->current]) step("unlocks", lock, true);
    if (s->exploring) come_all(s->current);
    s->held = NULL;
    return 0;
}

uint64_t model_ticks(void) { return ++s->clock; }

int model_clock(int which, struct timespec *now) {
    (void)which;
    s->clock += 1000;
    *now = (struct timespec){.tv_sec = (time_t)(s->clock / 1000000000), .tv_nsec = (long)(s->clock % 1000000000)};
    return 0;
}

int model_sleep(const struct timespec *length) {
    s->clock += (uint64_t)length->tv_nsec;
    return 0;
}

static void run(void) {
    int me = s->current;
    s->story->threads[me]();
    s->running[me] = false;
    s->here[me] = hw_here;
    s->outside[me] = hw_outside;
    swapcontext(&s->contexts[me], &s->scheduler);
}

static void begin(int thread) {
    getcontext(&s->contexts[thread]);
    s->contexts[thread].uc_stack.ss_sp = s->stacks[thread];
    s->contexts[thread].uc_stack.ss_size = STACK;
    s->contexts[thread].uc_link = NULL;
    makecontext(&s->contexts[thread], run, 0);
    s->running[thread] = true;
    s->here[thread] = s->here_before;
    s->outside[thread] = s->outside_before;
    s->wants[thread] = NULL;
    s->lates[thread] = 0;
}

/* Lets the thread go on until just before its next step. */
static void go_on(int thread) {
    s->current = thread;
    hw_here = s->here[thread];
    hw_outside = s->outside[thread];
    swapcontext(&s->scheduler, &s->contexts[thread]);
}

static int choose(int of) {
    if (s->depth == CHOICES) abort();
    int made = s->depth < s->known ? s->choices[s->depth].made : 0;
    s->choices[s->depth].made = (unsigned char)made;
    s->choices[s->depth].of = (unsigned char)of;
    s->depth++;
    if (s->depth > s->known) s->known = s->depth;
    return made;
}

/* Threads that were let go on here before, or slept, need not go on just after this: as long as what they do next and
 * what was done instead are independent, the order in which the two come makes no difference (sleep sets). */
static unsigned asleep_after(const struct choice *c, const struct step *next) {
    unsigned before = c->asleep, asleep = 0;
    for (int i = 0; i < c->made; i++) before |= 1u << c->who[i];
    for (int i = 0; i < THREADS; i++) {
        bool depends = next[i].word == c->step.word && (next[i].writes || c->step.writes);
        if (before >> i & 1 && !depends) asleep |= 1u << i;
    }
    return asleep;
}

/* One order, by the choices that are known and then by the first of each; false: it is like one that was. */
static bool make_order(void) {
    copy(__data_start, s->snapshot, (size_t)(_end - __data_start));
    s->depth = 0;
    s->held = NULL;
    s->clock = s->clock_before;
    struct step next[THREADS] = {{0}};
    s->exploring = true;
    for (int i = 0; i < THREADS; i++) {
        s->running[i] = false;
        s->lates[i] = 0;
        if (s->story->threads[i]) begin(i);
    }
    for (int i = 0; i < THREADS; i++)
        if (s->running[i]) {
            go_on(i);
            next[i] = s->step;
        }
    for (;;) {
        struct {
            int thread, at;
        } can[THREADS * (STORES + 1)];
        int n = 0;
        bool any = false, stuck = true;
        unsigned asleep = 0;
        if (s->depth && !s->story->delays) asleep = asleep_after(&s->choices[s->depth - 1], next);
        for (int i = 0; i < THREADS; i++) {
            any |= s->running[i] || s->lates[i];
            bool goes = s->running[i] && !(s->wants[i] && s->held == s->wants[i]);
            stuck &= !goes && !s->lates[i];
            if (goes && !(asleep >> i & 1)) can[n].thread = i, can[n++].at = -1;
            for (int at = 0; at < s->lates[i]; at++)
                if (may_come(i, at)) can[n].thread = i, can[n++].at = at;
        }
        if (!any) break;
        if (stuck) expect(false, "nobody can go on");
        if (!n) return s->exploring = false;
        int made = choose(n), thread = can[made].thread;
        struct choice *c = &s->choices[s->depth - 1];
        c->asleep = asleep;
        for (int i = 0; i < n && i < THREADS; i++) c->who[i] = (unsigned char)can[i].thread;
        if (can[made].at >= 0) {
            const char *word = s->late[thread][can[made].at].word;
            snprintf(c->step.what, sizeof c->step.what, "thread %d: its store comes to %p", thread, word);
            come(thread, can[made].at);
            continue;
        }
        c->step = next[thread];
        go_on(thread);
        next[thread] = s->step;
    }
    s->exploring = false;
    hw_here = s->here_before;
    s->story->after();
    return true;
}

/* The last choice that can be made differently is; those after it are forgotten. */
static bool next_order(void) {
    while (s->known && s->choices[s->known - 1].made + 1 == s->choices[s->known - 1].of) s->known--;
    if (!s->known) return false;
    s->choices[s->known - 1].made++;
    return true;
}

unsigned long explore(const struct story *story) {
    size_t size = (size_t)(_end - __data_start);
    s = calloc(1, sizeof *s);
    s->story = story;
    s->clock = START;
    s->snapshot = malloc(size);
    for (int i = 0; i < THREADS; i++) s->stacks[i] = malloc(STACK);
    story->before();
    s->here_before = hw_here;
    s->outside_before = hw_outside;
    s->clock_before = s->clock;
    copy(s->snapshot, __data_start, size);
    unsigned long orders;
    do {
        orders = 0;
        s->found = false;
        s->known = 0;
        do {
            orders += make_order();
            if (orders == MOST) expect(false, "there are too many orders");
        } while (!s->found && next_order());
    } while (s->found);
    copy(__data_start, s->snapshot, size);
    return orders;
}
