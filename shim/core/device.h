/* A software GPU made into one device: its threads on one CPU, everything else on the others. */
#ifndef HEADWAY_DEVICE_H
#define HEADWAY_DEVICE_H

void hw_device_init(void);
/* A context was made current: the driver has its threads by now. */
void hw_device_bound(void *context);
void hw_device_ended(void *context);

/* Around a call in which a driver makes its threads: they are the device's. */
void hw_device_making(void);
void hw_device_made(void);

#endif
