/* RTLD_DEEPBIND: a library that a program loads in this way finds functions in its own libraries before it finds ours,
 * and its GPU work would pass the gate by. So the flag is taken away, but only from libraries that reach a GPU's API:
 * those linked with one of its libraries, directly or by others that are loaded with them, and those that can look one
 * up and have its name in them. Whoever else is loaded in this way has a reason, and is let be, also in doubt. */
#define _GNU_SOURCE
#include "loader.h"
#include "own.h"
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* More libraries than this are not looked at. */
#define FILES 64

static const char *const apis[] = {"libcuda.so", "libOpenCL.so", "libGL.so",     "libEGL.so",
                                   "libGLX.so",  "libGLESv",     "libOpenGL.so", "libvulkan.so", NULL};

bool hw_is_api(const char *library) {
    for (const char *const *api = apis; *api; api++)
        if (!strncmp(library, *api, strlen(*api))) return true;
    return false;
}

/* ---- a library's file ---------------------------------------------------------------------------------- */

struct file {
    const char *data;
    size_t size;
};

static struct file open_file(const char *path) {
    struct stat info;
    struct file file = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return file;
    if (!fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size > (off_t)sizeof(ElfW(Ehdr))) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED) file = (struct file){data, (size_t)info.st_size};
    }
    close(fd);
    return file;
}

static void close_file(const struct file *file) {
    if (file->data) munmap((void *)file->data, file->size);
}

/* So many bytes of the file from there on; NULL: they are not in it. */
static const void *part(const struct file *file, uint64_t at, uint64_t size) {
    return file->data && at <= file->size && size <= file->size - at ? file->data + at : NULL;
}

/* What a library says of itself. */
struct dynamic {
    const ElfW(Dyn) *entries;
    size_t count;
    const char *strings; /* what ends with a 0 */
    size_t strings_size;
};

static const ElfW(Phdr) *segments_of(const struct file *file, size_t *count) {
    const ElfW(Ehdr) *head = part(file, 0, sizeof *head);
    if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_phentsize != sizeof(ElfW(Phdr))) return NULL;
    if (head->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)) return NULL;
    *count = head->e_phnum;
    return part(file, head->e_phoff, *count * sizeof(ElfW(Phdr)));
}

/* What is loaded at an address. */
static const void *at(const struct file *file, uint64_t address, uint64_t size) {
    size_t count;
    const ElfW(Phdr) *s = segments_of(file, &count);
    for (size_t i = 0; s && i < count; i++)
        if (s[i].p_type == PT_LOAD && address >= s[i].p_vaddr && address - s[i].p_vaddr < s[i].p_filesz)
            return part(file, s[i].p_offset + (address - s[i].p_vaddr), size);
    return NULL;
}

static bool read_dynamic(const struct file *file, struct dynamic *found) {
    size_t count;
    uint64_t strings = 0;
    const ElfW(Phdr) *s = segments_of(file, &count);
    *found = (struct dynamic){0};
    for (size_t i = 0; s && i < count; i++) {
        if (s[i].p_type != PT_DYNAMIC) continue;
        found->entries = part(file, s[i].p_offset, s[i].p_filesz);
        found->count = found->entries ? s[i].p_filesz / sizeof *found->entries : 0;
    }
    for (size_t i = 0; i < found->count; i++) {
        if (found->entries[i].d_tag == DT_STRTAB) strings = found->entries[i].d_un.d_ptr;
        if (found->entries[i].d_tag == DT_STRSZ) found->strings_size = found->entries[i].d_un.d_val;
    }
    found->strings = strings ? at(file, strings, found->strings_size) : NULL;
    return found->strings && found->strings_size && !found->strings[found->strings_size - 1];
}

static const char *text(const struct dynamic *d, const ElfW(Dyn) *entry) {
    return entry->d_un.d_val < d->strings_size ? d->strings + entry->d_un.d_val : "";
}

static const char *entry_of(const struct dynamic *d, ElfW(Sxword) tag) {
    for (size_t i = 0; i < d->count && d->entries[i].d_tag != DT_NULL; i++)
        if (d->entries[i].d_tag == tag) return text(d, &d->entries[i]);
    return NULL;
}

static bool names(const struct dynamic *d, const char *function) {
    return memmem(d->strings, d->strings_size, function, strlen(function) + 1);
}

/* It can look functions up, and knows where. */
static bool looks_up(const struct file *file, const struct dynamic *d) {
    if (!names(d, "dlsym") && !names(d, "dlvsym") && !names(d, "dlopen")) return false;
    for (const char *const *api = apis; *api; api++)
        if (memmem(file->data, file->size, *api, strlen(*api))) return true;
    return false;
}

/* ---- where a library is ------------------------------------------------------------------------------------ */

/* In one of the folders of a list, in which $ORIGIN is the folder of whoever names it. */
static bool in_folders(const char *list, const char *origin, const char *name, char *path) {
    int length = (int)(strrchr(origin, '/') ? strrchr(origin, '/') - origin : 0);
    while (list && *list) {
        int size = (int)strcspn(list, ":"), skipped = 0;
        const char *folder = list;
        list += size + (list[size] == ':');
        if (!strncmp(folder, "$ORIGIN", 7)) skipped = 7;
        if (!strncmp(folder, "${ORIGIN}", 9)) skipped = 9;
        int written = snprintf(path, PATH_MAX, "%.*s%.*s/%s", skipped ? length : 0, origin, size - skipped,
                               folder + skipped, name);
        if (written > 0 && written < PATH_MAX && !access(path, R_OK)) return true;
    }
    return false;
}

/* How that list tells libraries of this processor from others. */
#if defined(__x86_64__)
#define OUR_KIND 0x0303
#elif defined(__aarch64__)
#define OUR_KIND 0x0a03
#endif

/* Where the loader's list of the system's libraries says that it is. */
static bool in_cache(const char *name, char *path) {
    struct entry {
        int32_t flags;
        uint32_t key, value, version;
        uint64_t hardware;
    };
    static const char magic[] = "glibc-ld.so.cache1.1";
    struct file cache = open_file("/etc/ld.so.cache");
    const uint32_t *count = part(&cache, sizeof magic - 1, sizeof *count);
    bool found = false;
    if (count && !memcmp(cache.data, magic, sizeof magic - 1)) {
        const struct entry *entries = part(&cache, 48, (uint64_t)*count * sizeof *entries);
        for (uint32_t i = 0; entries && i < *count && !found; i++) {
            const char *key = part(&cache, entries[i].key, strlen(name) + 1);
            const char *value = part(&cache, entries[i].value, 1);
            if (entries[i].flags != OUR_KIND || !key || !value || memcmp(key, name, strlen(name) + 1)) continue;
            size_t most = cache.size - entries[i].value;
            found = strnlen(value, most) < (most < PATH_MAX ? most : PATH_MAX);
            if (found) strcpy(path, value);
        }
    }
    close_file(&cache);
    return found;
}

/* As the loader would look for it, for a library or program in the file `origin`. */
static bool find(const char *name, const char *origin, const struct dynamic *by, char *path) {
    static const char usual[] = "/lib64:/usr/lib64:/lib:/usr/lib";
    const char *run = by ? entry_of(by, DT_RUNPATH) : NULL;
    if (strchr(name, '/')) {
        bool fits = strlen(name) < PATH_MAX;
        if (fits) strcpy(path, name);
        return fits;
    }
    if (by && !run && in_folders(entry_of(by, DT_RPATH), origin, name, path)) return true;
    return in_folders(getenv("LD_LIBRARY_PATH"), "", name, path) || in_folders(run, origin, name, path) ||
           in_cache(name, path) || in_folders(usual, "", name, path);
}

/* ---- whether it reaches an API ------------------------------------------------------------------------------- */

/* Files to look at, and names that were needed. */
struct search {
    char *names[FILES], *paths[FILES];
    size_t known, found;
};

static bool is_new(struct search *search, const char *name) {
    for (size_t i = 0; i < search->known; i++)
        if (!strcmp(search->names[i], name)) return false;
    if (search->known == FILES || !(search->names[search->known] = strdup(name))) return false;
    search->known++;
    return true;
}

/* Where it is, to be looked at. Libraries that are there already are linked as they are. */
static void add(struct search *search, const char *name, const char *origin, const struct dynamic *by) {
    char path[PATH_MAX];
    if (!is_new(search, name) || hw_is_loaded(name) || !find(name, origin, by, path)) return;
    if ((search->paths[search->found] = strdup(path))) search->found++;
}

static bool reaches(struct search *search, const char *path) {
    struct file file = open_file(path);
    struct dynamic d;
    bool found = false;
    if (file.data && read_dynamic(&file, &d)) {
        found = looks_up(&file, &d);
        for (size_t i = 0; i < d.count && d.entries[i].d_tag != DT_NULL && !found; i++) {
            if (d.entries[i].d_tag != DT_NEEDED) continue;
            found = hw_is_api(text(&d, &d.entries[i]));
            add(search, text(&d, &d.entries[i]), path, &d);
        }
    }
    close_file(&file);
    return found;
}

/* From the library that is loaded on. */
static bool search_from(struct search *search, const char *library, const char *origin) {
    struct file file = open_file(origin);
    struct dynamic by;
    bool known = file.data && read_dynamic(&file, &by), found = false;
    add(search, library, origin, known ? &by : NULL);
    for (size_t i = 0; i < search->found && !found; i++) found = reaches(search, search->paths[i]);
    close_file(&file);
    return found;
}

bool hw_reaches_api(const char *library, void *caller) {
    Dl_info info = {0};
    struct search search = {.known = 0};
    HW_OWN;
    const char *origin = caller && dladdr(caller, &info) && info.dli_fname ? info.dli_fname : "";
    if (!strchr(origin, '/')) origin = "/proc/self/exe"; /* a program under the name that it was called by */
    bool found = search_from(&search, library, origin);
    while (search.known) free(search.names[--search.known]);
    while (search.found) free(search.paths[--search.found]);
    return found;
}
