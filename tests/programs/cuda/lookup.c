/* cuGetProcAddress in both its versions, from driver.def. */
#include "driver.h"
#include <stdlib.h>
#include <string.h>

/* The entry points themselves, whatever they take: never those of a library that was loaded before this one. */
#define DECLARE(symbol) extern void at_##symbol(void) __asm__(#symbol);
#define PLAIN(base, symbol, version) DECLARE(symbol)
#define PTSZ(base, symbol, version, pt) DECLARE(symbol) DECLARE(symbol##_ptsz)
#define PTDS(base, symbol, version, pt) DECLARE(symbol) DECLARE(symbol##_ptds)
#include "driver.def"
#undef PLAIN
#undef PTSZ
#undef PTDS

#define PLAIN(base, symbol, version) {#base, (void *)at_##symbol, version, NULL, 0},
#define PTSZ(base, symbol, version, pt) {#base, (void *)at_##symbol, version, (void *)at_##symbol##_ptsz, pt},
#define PTDS(base, symbol, version, pt) {#base, (void *)at_##symbol, version, (void *)at_##symbol##_ptds, pt},
static const struct {
    const char *base;
    void *function;
    int version;
    void *variant;
    int variant_version;
} table[] = {
#include "driver.def"
};

static bool is_hidden(const char *name) {
    const char *at = getenv("SOFTCUDA_HIDE");
    size_t length = strlen(name);
    for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && (at[length] == ',' || !at[length])) return true;
    return false;
}

static CUresult look_up(const char *name, void **found, int version, uint64_t flags, int *status) {
    const uint64_t known = CU_LOOKUP_LEGACY | CU_LOOKUP_PER_THREAD;
    if (!name || !*name || !found || version > (int)settings.version || flags > known) return CUDA_ERROR_INVALID_VALUE;
    int best = 0;
    *found = NULL;
    *status = CU_LOOKUP_NOT_FOUND;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].base, name) || table[i].version > (int)settings.version || is_hidden(name)) continue;
        bool variant = (flags & CU_LOOKUP_PER_THREAD) && table[i].variant;
        int since = variant ? table[i].variant_version : table[i].version;
        if (!*found) *status = CU_LOOKUP_VERSION;
        if (since > version || since < best) continue;
        best = since;
        *found = variant ? table[i].variant : table[i].function;
        *status = CU_LOOKUP_SUCCESS;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    int ignored;
    return look_up(name, found, version, flags, status ? status : &ignored);
}

/* The first version has nowhere to say why there is nothing. */
EXPORT CUresult cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) {
    int status = CU_LOOKUP_SUCCESS;
    CUresult error = look_up(name, found, version, flags, &status);
    return error ? error : status == CU_LOOKUP_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
