"""Headway: GPU time, on time."""

__version__ = "0.1.0"
