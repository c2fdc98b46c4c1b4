/* What a program sees of Vulkan's loader, without any. */
int vkCreateInstance(const void *info, const void *allocator, void **instance) {
    (void)info, (void)allocator;
    *instance = instance;
    return 0;
}

void *vkGetInstanceProcAddr(void *instance, const char *name) {
    (void)instance, (void)name;
    return (void *)vkCreateInstance;
}

int vkQueueSubmit(void *queue, unsigned count, const void *submits, void *fence) {
    (void)queue, (void)count, (void)submits, (void)fence;
    return 0;
}
