"""Reading and writing the files that people name on the command line."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from errno import EACCES
from pathlib import Path

from headway.sim.scenario import MAX_BYTES
from headway.view import targets
from headway.view.errors import UserError


def read_text(path: str) -> str:
    """The text of a file of reasonable size."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise UserError(f"{path}: found more than {MAX_BYTES} bytes, expected a smaller file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        found = f"byte {data[error.start]:#04x} at offset {error.start}"
        raise UserError(f"{path}: found {found}, expected UTF-8 text") from None


@contextlib.contextmanager
def whole_or_nothing(path: str) -> Iterator[Path]:
    """A file beside `path` that takes its place only if all went well."""
    partial = None
    try:
        target = targets.resolve(path)
        partial, file = targets.open_beside(target)
        file.close()
        yield partial
        partial.replace(target)
    except IsADirectoryError:
        raise UserError(f"{path}: found a folder, expected the name of a file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def check_writable(path: str) -> None:
    """Refuse a file that could not be written, before the work rather than after it."""
    try:
        folder = targets.resolve(path).parent
        if not os.access(folder, os.W_OK | os.X_OK):
            folder.stat()
            raise OSError(EACCES, os.strerror(EACCES))
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


def load_policy_file(path: str) -> None:
    """Run a Python file that registers policies with the decorator (docs/write-a-policy.md)."""
    name = f"headway_policy_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: expected a Python file, its name ending in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there for what their annotations mean
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        what = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be loaded: {type(error).__name__}: {what}") from None
