/* What shim/core/atomics.h, the lock and the clocks are where a test makes every order of accesses happen: each access is
 * a step of explore.c's. Compile the interposer's own files with -DHEADWAY_MODEL='"model.h"'. */
#ifndef HEADWAY_INTERLEAVE_MODEL_H
#define HEADWAY_INTERLEAVE_MODEL_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum order { RELAXED, RELEASE, FULL };
uint64_t model_load(const void *word, size_t size);
void model_store(void *word, size_t size, uint64_t value, enum order order);
/* What the word was, and what it is then: between the two there is no step. */
uint64_t model_change(void *word, size_t size, uint64_t value, const uint64_t *expected);
uint64_t model_add(void *word, size_t size, uint64_t more);
/* As fence.c: what is read after it is no older than what was written before it. */
void model_fence(void);
int model_lock(pthread_mutex_t *lock);
int model_unlock(pthread_mutex_t *lock);
int model_trylock(pthread_mutex_t *lock);
int model_clock(int which, struct timespec *now);
uint64_t model_ticks(void);

#define HW_KIND(word) __typeof__((word)->value)
#define HW_SIZE(word) sizeof((word)->value)
#define hw_load(word) ((HW_KIND(word))model_load(&(word)->value, HW_SIZE(word)))
#define hw_load_acquire(word) hw_load(word) /* loads are made in their order here */
#define hw_load_full(word) hw_load(word)
#define hw_store(word, new) model_store((void *)&(word)->value, HW_SIZE(word), (uint64_t)(new), RELAXED)
#define hw_store_release(word, new) model_store((void *)&(word)->value, HW_SIZE(word), (uint64_t)(new), RELEASE)
#define hw_store_full(word, new) model_store((void *)&(word)->value, HW_SIZE(word), (uint64_t)(new), FULL)
#define hw_add(word, more) model_add(&(word)->value, HW_SIZE(word), (uint64_t)(more))
#define hw_add_release(word, more) hw_add(word, more)
#define hw_add_full(word, more) hw_add(word, more)
#define hw_exchange_full(word, new) \
    ((HW_KIND(word))model_change(&(word)->value, HW_SIZE(word), (uint64_t)(new), NULL))
#define hw_replace_full(word, old, new) hw_model_replace(word, old, new)
#define hw_replace_release(word, old, new) hw_model_replace(word, old, new)
#define hw_model_replace(word, old, new) \
    ({ \
        uint64_t was = (uint64_t)*(old); \
        uint64_t is = model_change(&(word)->value, HW_SIZE(word), (uint64_t)(new), &was); \
        *(old) = (HW_KIND(word))is; \
        is == was; \
    })

#define pthread_mutex_lock(lock) model_lock(lock)
#define pthread_mutex_unlock(lock) model_unlock(lock)
#define pthread_mutex_trylock(lock) model_trylock(lock)
#define clock_gettime(which, now) model_clock(which, now)
int model_sleep(const struct timespec *length);
#define nanosleep(length, left) model_sleep(length)
#define __builtin_ia32_rdtsc() model_ticks()

#endif
