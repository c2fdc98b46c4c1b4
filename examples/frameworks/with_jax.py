"""An ordinary JAX program: a compiled function of integers, input and output copied each time."""

from __future__ import annotations

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave memory to others

import jax
import jax.numpy as jnp
import numpy
from rounds import serve

WORDS, KERNELS, LOOPS = 1 << 20, 10, 1000


@jax.jit
def step(values: jax.Array, mix: jax.Array) -> jax.Array:
    def once(_: int, x: jax.Array) -> jax.Array:
        for _ in range(LOOPS // KERNELS):
            x = (x ^ (x >> jnp.uint32(7))) * jnp.uint32(1664525) + jnp.uint32(1013904223)
        return x

    return jax.lax.fori_loop(0, KERNELS, once, values ^ mix)


counted = numpy.arange(WORDS, dtype=numpy.uint32)


def work(number: int) -> bytes:
    values = jax.device_put(counted + numpy.uint32(number))
    for mix in range(KERNELS // 2):
        values = step(values, jnp.uint32(mix))
    return numpy.asarray(values[::4096]).tobytes()


serve(work)
