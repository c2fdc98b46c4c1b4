"""Blocks of a program that begin and end, in every way that Python has of writing them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

Called = TypeVar("Called", bound=Callable[..., Any])


class Block:
    """`with`, `async with`, or a decorator of a function that may be async; as often as wanted, and
    within itself."""

    def __init__(self, begin: Callable[[], Callable[[], None]]) -> None:
        """`begin` begins a block and returns what ends that one."""
        self._begin = begin
        self._ends: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self._ends.append(self._begin())

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        where: TracebackType | None = None,
    ) -> None:
        self._ends.pop()()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        where: TracebackType | None = None,
    ) -> None:
        self.__exit__()

    def __call__(self, function: Called) -> Called:
        """Every call of the function is such a block."""
        begin = self._begin

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def later(*args: Any, **kwargs: Any) -> Any:
                with Block(begin):
                    return await function(*args, **kwargs)

            return later  # type: ignore[return-value]

        @functools.wraps(function)
        def now(*args: Any, **kwargs: Any) -> Any:
            with Block(begin):
                return function(*args, **kwargs)

        return now  # type: ignore[return-value]
