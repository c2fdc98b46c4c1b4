/* The daemon's memory barrier, for Python has none: taking and leaving a lock orders what stands between the two, but
 * what stands before and after may move in between and pass each other there, and on ARM does. A library of its own,
 * because the daemon must not load the interposer. */
__attribute__((visibility("default"))) void headway_fence(void);

void headway_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
