/* Memory that two sides use at the same time: a program and the daemon, threads of a program, the CPU and the GPU.
 *
 * Each such word is a struct, so that no plain access to it compiles; it is used by what is below, and by nothing else.
 * The name of each access says what it orders:
 *     (nothing)  the word itself is read and written whole, and nothing else is ordered by it
 *     _acquire   what this thread does after it, is after it
 *     _release   what this thread did before it, is before it
 *     _full      both, and all accesses of this kind have one order that everybody sees. Where each of two sides writes
 *                its own word and looks at the other's then, one of them sees the other. The daemon's part of that is
 *                a store, a fence (fence.c) and a load. */
#ifndef HEADWAY_ATOMICS_H
#define HEADWAY_ATOMICS_H

#include <stdbool.h>
#include <stdint.h>

#define HW_SHARED(type) \
    struct { \
        type value; \
    }

typedef HW_SHARED(char) hw_char;
typedef HW_SHARED(uint16_t) hw_u16;
typedef HW_SHARED(uint32_t) hw_u32;
typedef HW_SHARED(uint64_t) hw_u64;
typedef HW_SHARED(int) hw_int;
typedef HW_SHARED(void *) hw_pointer;

#ifdef HEADWAY_MODEL /* the same accesses as a test makes them happen in every order (tests/interleave) */
#include HEADWAY_MODEL
#else
#define hw_load(word) __atomic_load_n(&(word)->value, __ATOMIC_RELAXED)
#define hw_load_acquire(word) __atomic_load_n(&(word)->value, __ATOMIC_ACQUIRE)
#define hw_load_full(word) __atomic_load_n(&(word)->value, __ATOMIC_SEQ_CST)
#define hw_store(word, new) __atomic_store_n(&(word)->value, new, __ATOMIC_RELAXED)
#define hw_store_release(word, new) __atomic_store_n(&(word)->value, new, __ATOMIC_RELEASE)
#define hw_store_full(word, new) __atomic_store_n(&(word)->value, new, __ATOMIC_SEQ_CST)
/* These say what the word is then. */
#define hw_add(word, more) __atomic_add_fetch(&(word)->value, more, __ATOMIC_RELAXED)
#define hw_add_release(word, more) __atomic_add_fetch(&(word)->value, more, __ATOMIC_RELEASE)
#define hw_add_full(word, more) __atomic_add_fetch(&(word)->value, more, __ATOMIC_SEQ_CST)
/* What the word was before. */
#define hw_exchange_full(word, new) __atomic_exchange_n(&(word)->value, new, __ATOMIC_SEQ_CST)
/* Whether the word was `*old`, and is `new` now; else `*old` is what it is. */
#define hw_replace_release(word, old, new) \
    __atomic_compare_exchange_n(&(word)->value, old, new, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
#define hw_replace_full(word, old, new) \
    __atomic_compare_exchange_n(&(word)->value, old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)
#endif

/* Of a word that one thread alone writes, or all of them under one lock: others may miss the change for a moment. */
#define hw_count(word, more) hw_store(word, hw_load(word) + (more))

#endif
