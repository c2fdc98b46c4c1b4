#define _GNU_SOURCE
#include "survey.h"
#include "gate.h"
#include "loader.h"
#include "vulkan.h"
#include "own.h"
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char path[PATH_MAX]; /* empty: nobody looks */
static hw_u32 unknown;

/* ---- what is work ---------------------------------------------------------------------------- */

static bool begins(const char *name, const char *const *beginnings) {
    for (; *beginnings; beginnings++)
        if (!strncmp(name, *beginnings, strlen(*beginnings))) return true;
    return false;
}

bool hw_is_work(const char *name) {
    static const char *const work[] = {
        "cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch", "clEnqueue", "glDraw", "glMultiDraw", "glDispatch",
        "glBlit", "glClearBuffer", "glClearNamed", "glClearTex", "glXSwapBuffers", "eglSwapBuffers",
        "vkQueueSubmit", "vkQueuePresent", "vkCreateInstance", "vkGetInstanceProcAddr", NULL};
    /* They begin like work, and give the GPU none. */
    static const char *const other[] = {
        "cuLaunchHostFunc", "clEnqueueBarrier", "clEnqueueWaitForEvents", "clEnqueueNativeKernel", "clEnqueueSVMFree",
        "clEnqueueAcquire", "clEnqueueRelease", "glDrawBuffer", NULL};
    if (!name || (name[0] != 'c' && name[0] != 'g' && name[0] != 'e' && name[0] != 'v')) return false;
    return begins(name, work) && !begins(name, other);
}

/* ---- calls of what passed ------------------------------------------------------------------------ */

/* What a function takes is not known here, so a call of it is counted on the way, with all registers as they
 * are that may hold something. */
#define STUBS 128
__attribute__((used, visibility("hidden"))) struct {
    hw_u64 *calls;
    void *target;
} hw_stubs[STUBS];
static struct hw_calls *more_calls; /* behind those of the hooks; NULL: nobody counts */
extern const char hw_stub_code[] __attribute__((visibility("hidden")));

#if defined(__x86_64__)
#define STUB_SIZE 32
__asm__(".text\n.p2align 5\nhw_stub_code:\n.set hw_stub, 0\n.rept 128\n"
        "  .p2align 5\n  endbr64\n"
        "  movq hw_stubs + 16 * hw_stub(%rip), %r11\n  lock incq (%r11)\n"
        "  jmp *hw_stubs + 16 * hw_stub + 8(%rip)\n"
        ".set hw_stub, hw_stub + 1\n.endr\n");
#elif defined(__aarch64__)
#define STUB_SIZE 64
__asm__(".text\n.p2align 6\nhw_stub_code:\n.set hw_stub, 0\n.rept 128\n"
        "  .p2align 6\n"
        "  adrp x16, hw_stubs + 16 * hw_stub\n  add x16, x16, :lo12:hw_stubs + 16 * hw_stub\n  ldr x17, [x16]\n"
        "1: ldxr x9, [x17]\n  add x9, x9, #1\n  stxr w10, x9, [x17]\n  cbnz w10, 1b\n"
        "  ldr x17, [x16, #8]\n  br x17\n"
        ".set hw_stub, hw_stub + 1\n.endr\n");
#endif

/* Other processes may take rows of the same name: they are added up. */
static hw_u64 *row_for(const char *name) {
    static size_t used;
    for (; used < STUBS; used++) {
        char free = 0;
        if (hw_replace_full((hw_char *)more_calls[used].name, &free, '+')) {
            strncpy(more_calls[used].name + 1, name, sizeof more_calls->name - 2);
            return &more_calls[used].count;
        }
    }
    return NULL;
}

static void *counted(const char *name, void *found) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    void *given = found;
    HW_HOLD(&lock);
    for (size_t i = 0; i < STUBS && given == found; i++) {
        if (!hw_stubs[i].target && (hw_stubs[i].calls = row_for(name))) hw_stubs[i].target = found;
        if (!hw_stubs[i].target) break;
        if (hw_stubs[i].target == found) given = (void *)(hw_stub_code + i * STUB_SIZE);
    }
    return given;
}

/* ---- telling ----------------------------------------------------------------------------------- */

/* Programs may look the same thing up for every frame: each is told once. */
#define SEEN 2048
static bool is_new(const char *kind, const char *way, const char *name) {
    static hw_u64 seen[SEEN];
    const char *words[] = {kind, way, name};
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < 3; i++)
        for (const char *p = words[i]; *p; p++) hash = (hash ^ (uint8_t)*p) * 0x100000001b3ull;
    hash |= 1;
    for (size_t i = 0; i < SEEN; i++) {
        uint64_t there = 0;
        if (hw_replace_full(&seen[(hash + i) % SEEN], &there, hash))
            return true;
        if (there == hash) return false;
    }
    return false;
}

/* The file is opened for each line: a program may close descriptors that it does not know. */
static void tell(const char *kind, const char *way, const char *name, const char *more) {
    char line[512];
    HW_OWN;
    if (!*path || !is_new(kind, way, name)) return;
    int length = snprintf(line, sizeof line, "%d %s %s %s%s\n", (int)getpid(), kind, way, name, more);
    int file = length > 0 && length < (int)sizeof line ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file >= 0) {
        ssize_t ignored = write(file, line, (size_t)length);
        (void)ignored;
        close(file);
    }
}

void hw_survey_hooked(const char *name, const char *way) { tell("hooked", way, name, ""); }

void *hw_survey_passed(const char *name, const char *way, int version, void *found) {
    char asked[16];
    if (!hw_is_work(name) || (name[0] == 'v' && !hw_vulkan_found())) return found;
    snprintf(asked, sizeof asked, " %d", version);
    if (is_new("unknown", "", name)) hw_gate_show_unknown(hw_add(&unknown, 1));
    tell("passed", way, name, asked);
    return found && more_calls ? counted(name, found) : found;
}

uint32_t hw_survey_unknown(void) { return hw_load(&unknown); }

/* ---- links --------------------------------------------------------------------------------------- */

static const void *at(const struct dl_phdr_info *object, ElfW(Addr) address) {
    return (const void *)(address < object->dlpi_addr ? address + object->dlpi_addr : address);
}

/* Objects that are linked with no library of an API are most of them, and may be large. */
static bool is_linked_with_any(const ElfW(Dyn) *entry, const char *strings) {
    for (; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_NEEDED && hw_is_api(strings + entry->d_un.d_val)) return true;
    return false;
}

static int look_at(struct dl_phdr_info *object, size_t size, void *unused) {
    const ElfW(Dyn) *dynamic = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *table = NULL;
    (void)size, (void)unused;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB) symbols = at(object, d->d_un.d_ptr);
        if (d->d_tag == DT_STRTAB) strings = at(object, d->d_un.d_ptr);
        if (d->d_tag == DT_GNU_HASH || (d->d_tag == DT_HASH && !table)) table = at(object, d->d_un.d_ptr);
    }
    if (!symbols || !strings || !table || !is_linked_with_any(dynamic, strings)) return 0;
    /* In both tables the second word is behind the last symbol that may be undefined. */
    for (uint32_t i = 0; i < table[1]; i++) {
        const char *name = strings + symbols[i].st_name;
        if (symbols[i].st_shndx == SHN_UNDEF && hw_is_work(name) && !hw_find_hook(name))
            hw_survey_passed(name, "link", 0, NULL);
    }
    return 0;
}

void hw_survey_links(void) { dl_iterate_phdr(look_at, NULL); }

/* ---- calls ----------------------------------------------------------------------------------------- */

static struct hw_calls *count_for(struct hw_calls *row, const struct hw_hook *hooks, size_t count) {
    for (size_t i = 0; i < count; i++, row++) {
        strncpy(row->name, hooks[i].name, sizeof row->name - 1);
        *hooks[i].calls = &row->count;
    }
    return row;
}

/* All processes add to one table, which is the same for all. */
static void count_calls(void) {
    char name[PATH_MAX + 8];
    size_t count = hw_hook_count + hw_cuda_hook_count + hw_opencl_hook_count + STUBS;
    size_t size = count * sizeof(struct hw_calls);
    snprintf(name, sizeof name, "%s.calls", path);
    int file = open(name, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *rows = ftruncate(file, (off_t)size) ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (rows == MAP_FAILED) return;
    rows = count_for(rows, hw_hooks, hw_hook_count);
    rows = count_for(rows, hw_cuda_hooks, hw_cuda_hook_count);
    more_calls = count_for(rows, hw_opencl_hooks, hw_opencl_hook_count);
}

void hw_survey_begin(void) {
    const char *name = getenv("HEADWAY_LOOKUPS");
    if (!name || !*name || strlen(name) >= sizeof path) return;
    strcpy(path, name);
    tell("loaded", "-", program_invocation_short_name, "");
    count_calls();
    hw_survey_links();
}

/* Once more, for what was loaded since. */
__attribute__((destructor)) static void end(void) {
    if (*path) hw_survey_links();
}
