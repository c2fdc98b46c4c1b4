/* Uses Vulkan as programs do: linked with it (-DLINKED), or by opening it; ends at the end of its input.
 * As a library (-DDRIVER) it is an OpenGL driver that is made of Vulkan, and -DGL opens that. */
#include <dlfcn.h>
#include <stdio.h>

int vkQueueSubmit(void *queue, unsigned count, const void *submits, void *fence);

__attribute__((unused)) static int use(void) {
#ifdef LINKED
    return vkQueueSubmit(0, 0, 0, 0);
#else
    void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("no Vulkan: %s\n", dlerror());
        return 3;
    }
    void *(*get)(void *, const char *) = (void *(*)(void *, const char *))dlsym(library, "vkGetInstanceProcAddr");
    return get && get(0, "vkCreateInstance") ? 0 : 4;
#endif
}

#ifdef DRIVER
int use_driver(void) { return use(); }
#else
int main(void) {
#ifdef GL
    void *driver = dlopen("libgallium-1.so", RTLD_NOW);
    int (*use_driver)(void) = driver ? (int (*)(void))dlsym(driver, "use_driver") : 0;
    int code = use_driver ? use_driver() : 5;
#else
    int code = use();
#endif
    printf("used %d\n", code);
    fflush(stdout);
    while (getchar() != EOF) {}
    return code;
}
#endif
