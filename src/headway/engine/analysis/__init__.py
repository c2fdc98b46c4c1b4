"""Bounds by proof: how long requests wait and how late jobs end in the worst case.

`gpusync.py` bounds machines with tokens and unit locks, `groups.py` one GPU under priorities and
reserves. Both give a `Verdict` for each task. Everything is integer nanoseconds, rounded so that a
bound stays one.
"""
