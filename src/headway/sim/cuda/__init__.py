"""CUDA programs in virtual time: they take turns by the same objects as real ones.

A simulated program has a page, an interposer that forms pieces and obeys that page, and a context
with lanes on a simulated device. Everything in between is decided by the engine's arbiter; without
Headway the device alone decides, as the hardware does.
"""
