/* Launches and copies as numbers, for cost models. */
#include "launches.h"
#ifdef HW_PREDICT
#include "lanes.h"

/* A mark costs some 10 us where it is an event of its own: it stands behind work that takes twenty times as long, and
 * behind one of so many that are shorter. */
#define LONG_NS 200000u
#define SELDOM 16

_Thread_local struct hw_launch hw_launching;

/* When the last marks of each lane were reached. */
#define ENDS 64
static struct {
    hw_u64 ns;
    hw_u32 number;
} reached[HW_LANES][ENDS];
static uint64_t finished_ns[HW_DEVICES][HW_LANES];

bool hw_launch_is_wanted(const struct hw_cost *cost) {
    static uint32_t number;
    return cost->ns >= LONG_NS || number++ % SELDOM == 0;
}

static bool slot_of(const hw_u32 *word, uint32_t *slot) {
    const struct hw_client_page *page = hw_page();
    if (!page || word < page->done || word >= page->done + HW_LANES) return false;
    *slot = (uint32_t)(word - page->done);
    return true;
}

/* On a thread of the driver, which takes no lock of ours. */
void hw_launch_reached(const hw_u32 *word, uint32_t number) {
    uint32_t slot;
    if (!slot_of(word, &slot)) return;
    hw_store(&reached[slot][number % ENDS].ns, hw_now());
    hw_store_release(&reached[slot][number % ENDS].number, number);
}

static void tell(const struct hw_launch *launch, uint32_t works, uint64_t took_ns) {
    struct hw_client_page *page = hw_page();
    if (!page || !works || !launch->kernel) return;
    uint32_t number = hw_load(&page->launches);
    struct hw_launched *l = &page->launched[number % HW_LAUNCHES];
    hw_store(&l->kernel, launch->kernel);
    hw_store(&l->items, launch->items);
    hw_store(&l->buffers, launch->buffers);
    hw_store(&l->took_ns, took_ns);
    hw_store(&l->block, launch->block);
    hw_store(&l->shared, launch->shared);
    hw_store(&l->works, works);
    hw_store(&l->share, hw_turn_told());
    hw_store_release(&page->launches, number + 1); /* the daemon reads the last ones now and then */
}

void hw_launch_took(const struct batch *b, uint64_t took_ns) {
    if (b->sum.parts == 1 && took_ns) tell(&b->sum.part[0].of->launch, b->sum.part[0].works, took_ns);
}

/* It ran from when it was issued, or the batch before it was done. Who is told of marks later than of what they stand
 * behind has it just done now. */
void hw_launch_done(const struct batch *b, uint64_t now) {
    uint32_t slot;
    if (b->gated || !b->word || !slot_of(b->word, &slot)) return;
    bool told = hw_load_acquire(&reached[slot][b->seq % ENDS].number) == b->seq;
    uint64_t end = told ? hw_load(&reached[slot][b->seq % ENDS].ns) : now;
    uint64_t start = b->issued_ns > finished_ns[hw_here.device][slot] ? b->issued_ns : finished_ns[hw_here.device][slot];
    finished_ns[hw_here.device][slot] = end;
    if (b->works && !b->doubtful && end > start) hw_launch_took(b, end - start);
}
#endif
