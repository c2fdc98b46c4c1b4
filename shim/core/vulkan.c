#define _GNU_SOURCE
#include "vulkan.h"
#include "atomics.h"
#include "gate.h"
#include "words.h"
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libvulkan.so"
#define REFUSED 2 /* as of `headway run` */

static bool watches, requires;
static hw_int wanted, said; /* by the program itself, not by a driver of OpenGL */

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_vulkan(const char *path) { return path && !strncmp(base_of(path), LIBRARY, sizeof LIBRARY - 1); }

static void tell(const char *what) {
    if (!hw_exchange_full(&said, true)) hw_warn(what);
}

static int look_at(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size, (void)unused;
    return is_vulkan(object->dlpi_name);
}

void hw_vulkan_begin(void) {
    watches = hw_gate_enabled();
    requires = watches && getenv("HEADWAY_REQUIRE");
    if (!watches || !dl_iterate_phdr(look_at, NULL)) return;
    hw_store(&wanted, true);
    if (requires) {
        hw_warn("it is linked with Vulkan, which passes unmanaged; with --require it does not run");
        _exit(REFUSED);
    }
    tell("what it does with Vulkan passes unmanaged");
}

/* Mesa's Zink is such a driver. */
static bool is_gl_driver(void *caller) {
    static const char *const drivers[] = {"libgallium", "libGLX_", "libEGL_", "zink"};
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname) return false;
    const char *name = base_of(info.dli_fname);
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
        if (!strncmp(name, drivers[i], strlen(drivers[i]))) return true;
    return strstr(name, "_dri.so") != NULL;
}

const char *hw_vulkan_open(const char *file, void *caller) {
    if (!watches || !is_vulkan(file) || is_gl_driver(caller)) return file;
    hw_store(&wanted, true);
    if (!requires) return file;
    tell("it may not use Vulkan, which passes unmanaged: it runs with --require");
    return LIBRARY ", which headway run --require keeps from programs";
}

bool hw_vulkan_found(void) {
    if (!hw_load(&wanted)) return false;
    tell("what it does with Vulkan passes unmanaged");
    return true;
}
