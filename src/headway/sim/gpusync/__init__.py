"""GPUSync in virtual time: the locks alone, and whole machines of CPUs, devices and a bus."""
