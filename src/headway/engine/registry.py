"""What is found by its name: policies, cost models, controllers, programs, checks of the machine.

Each is one file in a package, and a decorator is all that makes it known:

    policy = Registry[type[Policy]]("policy", __name__, "name")

    @policy("prt")
    class Prt(Policy): ...

`policy.all()` imports the package's files on the way. A file from outside (`--load FILE`) uses the
same decorator.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import traceback
from collections.abc import Callable
from typing import Any, Generic, TypeVar


class ExtensionError(Exception):
    """The code of a policy or a cost model failed; str() is a line for whoever wrote it."""

    def __init__(self, what: str, name: str, hook: str, error: Exception) -> None:
        """`what` has failed, in its method `hook`."""
        self.what = what
        self.name = name
        frames = traceback.extract_tb(error.__traceback__)
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 1 else ""
        found = f"{type(error).__name__}: {' '.join(str(error).split())}"
        super().__init__(f"{what} {name}: {hook} failed: {found}{where}")


T = TypeVar("T")
C = TypeVar("C")
_NAME = re.compile(r"[a-z][a-z0-9_ -]*", re.IGNORECASE)


class Registry(Generic[T]):
    """Things of one kind, by the names that people use."""

    def __init__(self, what: str, package: str, attribute: str | None = None) -> None:
        """`what` is one of them, for messages; `attribute` is where a class is told its name."""
        self._what = what
        self._package = package
        self._attribute = attribute
        self._known: dict[str, T] = {}
        self._complete = False

    def __call__(self, name: str) -> Callable[[C], C]:
        """The decorator. A name has one owner: another thing of that name is refused."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{self._what} {name!r}: expected a name of letters, digits, - and _, such as wfq"
            )

        def register(item: C) -> C:
            known: Any = self._known.get(name)
            if known is not None and _whose(known) != _whose(item):
                raise ValueError(
                    f"{self._what} {name!r}: {_whose(item)} wants the name that {_whose(known)} has"
                )
            if self._attribute is not None:
                setattr(item, self._attribute, name)
            self._known[name] = item  # type: ignore[assignment]
            return item

        return register

    def all(self) -> dict[str, T]:
        """Everything that is known, by name."""
        if not self._complete:
            package = importlib.import_module(self._package)
            for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
                importlib.import_module(f"{self._package}.{module}")
            self._complete = True
        return self._known


def _whose(item: Any) -> str:
    return f"{item.__module__}.{item.__qualname__}"
