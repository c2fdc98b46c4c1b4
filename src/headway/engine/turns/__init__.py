"""Turns: how programs that hold the GPU for a while share it, in real and in virtual time alike.

A *client* is one program at the gate. What it is doing is read from its *port*, and what it may do
is published there as numbers: the live daemon's ports are pages of shared memory, the simulator's
are simulated programs. Everything decided in between is decided here.
"""
