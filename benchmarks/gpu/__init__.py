"""Measurements on a real NVIDIA GPU; benchmarks/gpu/run makes them all."""
