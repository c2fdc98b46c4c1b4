/* Vulkan passes unmanaged. A program that has it is told so, and under `headway run --require` does not get it. */
#ifndef HEADWAY_VULKAN_H
#define HEADWAY_VULKAN_H

#include <stdbool.h>

/* Programs that are linked with Vulkan; under --require they end here. */
void hw_vulkan_begin(void);
/* The name that is to be opened instead of this one, by whoever calls from there. */
const char *hw_vulkan_open(const char *file, void *caller);
/* A function of Vulkan was found; false: by an OpenGL driver that is made of Vulkan, whose work is managed. */
bool hw_vulkan_found(void);

#endif
