"""GPUSync's locks: which job may use which device, and which of its units, when (docs/locks.md).

A job asks the token allocator of its cluster for a token (`tokens.py`); the token stands for one
of the places of a device. A job with a token asks for the device's units one at a time
(`unit_locks.py`). Both hand priorities on to whoever stands in the way. Nothing here reads a clock.
"""
