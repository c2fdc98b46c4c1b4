"""Buffers of programs, whichever library made them: where they are, and copies of their parts.

PyTorch tensors, CuPy arrays and whatever lends its memory (NumPy arrays, bytearrays: those are on
the host). Any other object will do that has `device` (the number of its GPU, None on the host),
`nbytes`, `read(offset, length)`, `write(offset, data)` and `like(device)`, which makes another one
of its kind elsewhere; `freed`, if it has that, says that its memory is gone.
"""

from __future__ import annotations

import sys
from typing import Any

from headway.live.api.gpu_line import LockMisuse

_OWN = ("device", "nbytes", "read", "write", "like")


def _torch(buffer: Any) -> Any:
    """PyTorch, if the buffer is a tensor of it."""
    torch: Any = sys.modules.get("torch")
    return torch if torch is not None and isinstance(buffer, torch.Tensor) else None


def _cupy(buffer: Any) -> Any:
    """CuPy, if the buffer is an array of it."""
    cupy: Any = sys.modules.get("cupy")
    return cupy if cupy is not None and isinstance(buffer, cupy.ndarray) else None


def _is_own(buffer: Any) -> bool:
    return all(hasattr(buffer, name) for name in _OWN)


def _view(buffer: Any) -> memoryview:
    return memoryview(buffer).cast("B")


def check(buffer: Any, what: str) -> None:
    """LockMisuse unless the buffer is of a known kind, in one piece, and still there."""
    if _torch(buffer) is not None:
        known, whole = True, buffer.is_contiguous()
        freed = buffer.numel() > 0 and buffer.untyped_storage().nbytes() == 0
    elif _cupy(buffer) is not None:
        known, whole, freed = True, bool(buffer.flags.c_contiguous), False
    elif _is_own(buffer):
        known, whole, freed = True, True, bool(getattr(buffer, "freed", False))
    else:
        known, whole, freed = _lends(buffer)
    if not known:
        raise LockMisuse(
            f"{what}: found {type(buffer).__name__}, expected a PyTorch tensor, a CuPy array, "
            f"memory of the host, or an object with {', '.join(_OWN)}"
        )
    if freed:
        raise LockMisuse(f"{what} was freed; keep the buffer until nobody uses it any more")
    if not whole:
        raise LockMisuse(f"{what} is not contiguous; expected a buffer in one piece")


def _lends(buffer: Any) -> tuple[bool, bool, bool]:
    """Of memory of the host: whether it is some, in one piece, and freed."""
    try:
        with memoryview(buffer) as view:
            return True, view.c_contiguous, False
    except TypeError:
        return False, True, False
    except ValueError:  # a memoryview that was released
        return True, True, True


def device_of(buffer: Any) -> int | None:
    """The number of the GPU that has the buffer; None: the host has it."""
    torch, cupy = _torch(buffer), _cupy(buffer)
    if torch is not None:
        if not buffer.is_cuda:
            return None
        index = buffer.device.index
        return int(torch.cuda.current_device() if index is None else index)
    if cupy is not None:
        return int(buffer.device.id)
    if _is_own(buffer):
        found = buffer.device
        return None if found is None else int(found)
    return None


def size_of(buffer: Any) -> int:
    """The bytes of a buffer."""
    if _torch(buffer) is not None:
        return int(buffer.numel() * buffer.element_size())
    if _cupy(buffer) is not None or _is_own(buffer):
        return int(buffer.nbytes)
    return _view(buffer).nbytes


def like(buffer: Any, device: int | None) -> Any:
    """Room for the same on another device, or on the host."""
    torch, cupy = _torch(buffer), _cupy(buffer)
    if torch is not None:
        place = "cpu" if device is None else f"cuda:{device}"
        return torch.empty_like(buffer.detach(), device=place)
    if cupy is not None:
        if device is None:
            import numpy

            return numpy.empty(buffer.shape, buffer.dtype)
        with cupy.cuda.Device(device):
            return cupy.empty(buffer.shape, buffer.dtype)
    if _is_own(buffer):
        return buffer.like(device)
    raise LockMisuse(f"found memory of the host, expected a buffer that can be on GPU {device}")


def adopt(buffer: Any, new: Any) -> Any:
    """The buffer whose bytes are in `new` now: a tensor stays the object that it was."""
    if _torch(buffer) is not None:
        buffer.data = new
        return buffer
    return new


def copy_part(target: Any, source: Any, offset: int, length: int) -> None:
    """Copy a part, and wait until it is there."""
    torch, cupy = _torch(target) or _torch(source), _cupy(target) or _cupy(source)
    if torch is not None:
        part = slice(offset, offset + length)
        _bytes(torch, target)[part].copy_(_bytes(torch, source)[part])
        for device in {device_of(target), device_of(source)} - {None}:
            torch.cuda.synchronize(device)
    elif cupy is not None:
        runtime = cupy.cuda.runtime
        runtime.memcpy(
            _address(target) + offset, _address(source) + offset, length, runtime.memcpyDefault
        )
        cupy.cuda.Stream.null.synchronize()
    else:
        data = (
            source.read(offset, length)
            if _is_own(source)
            else _view(source)[offset : offset + length]
        )
        if _is_own(target):
            target.write(offset, data)
        else:
            _view(target)[offset : offset + length] = data


def _bytes(torch: Any, buffer: Any) -> Any:
    """A buffer as a row of bytes of PyTorch."""
    if _torch(buffer) is None:
        return torch.frombuffer(_view(buffer), dtype=torch.uint8)
    return buffer.detach().view(-1).view(torch.uint8)


def _address(buffer: Any) -> int:
    if _cupy(buffer) is not None:
        return int(buffer.data.ptr)
    import numpy

    return int(numpy.frombuffer(_view(buffer), dtype=numpy.uint8).ctypes.data)
