"""The values that change over a run: budgets and frame rates, each with a track of its own."""

from __future__ import annotations

from headway.view.traces.tracks import Canvas, Counter

RATE_NS = 250_000_000
"""Frames are counted over so long a time at least."""


class _Budget:
    __slots__ = ("budget_ns", "counter", "kind", "waiting")

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self.budget_ns = 0
        self.kind = "pe"
        self.waiting: dict[str, None] = {}
        """Tasks at the gate that are charged here."""


class Budgets:
    """The budget of each reserve, and whom it lets through."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._track = 0
        self._budgets: dict[str, _Budget] = {}

    def _of(self, reserve: str) -> _Budget:
        budget = self._budgets.get(reserve)
        if budget is None:
            self._track = self._track or self._canvas.track("Reserves")
            track = self._canvas.track(reserve, self._track, unit="us")
            budget = self._budgets[reserve] = _Budget(Counter(track))
        return budget

    def set_kind(self, reserve: str, kind: str) -> None:
        self._of(reserve).kind = kind

    def show(self, ns: int, reserve: str, budget_ns: int) -> None:
        budget = self._of(reserve)
        budget.budget_ns = budget_ns
        self._canvas.put(ns, budget.counter.at(budget_ns / 1000))

    def move(self, ns: int, giver: str, taker: str, amount_ns: int) -> None:
        self.show(ns, giver, self._of(giver).budget_ns - amount_ns)
        self.show(ns, taker, self._of(taker).budget_ns + amount_ns)

    def waits(self, reserve: str | None, task: str) -> None:
        if reserve is not None:
            self._of(reserve).waiting[task] = None

    def stops(self, reserve: str | None, task: str) -> None:
        if reserve is not None:
            self._of(reserve).waiting.pop(task, None)

    def waiting(self, reserve: str) -> list[str]:
        return list(self._of(reserve).waiting)

    def lets_through(self, reserve: str | None, predicted_ns: int) -> bool:
        if reserve is None:
            return True
        budget = self._of(reserve)
        return budget.budget_ns > 0 if budget.kind == "pe" else budget.budget_ns >= predicted_ns


class Shares:
    """The share of the multiprocessors of each task that was given one."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._track = 0
        self._counters: dict[str, Counter] = {}

    def show(self, ns: int, task: str, permille: int) -> None:
        counter = self._counters.get(task)
        if counter is None:
            self._track = self._track or self._canvas.track("Shares")
            track = self._canvas.track(task, self._track, unit="%")
            counter = self._counters[task] = Counter(track)
        self._canvas.put(ns, counter.at(permille / 10))


class _Rate:
    __slots__ = ("counter", "frames", "since_ns")

    def __init__(self, counter: Counter, ns: int) -> None:
        self.counter = counter
        self.frames = 0
        self.since_ns = ns


class FrameRates:
    """Frames per second of each task, over stretches of at least `RATE_NS`."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._track = 0
        self._rates: dict[str, _Rate] = {}

    def add(self, ns: int, task: str, frames: int) -> None:
        """So many more; a stretch is shown, from its begin on, when it is over."""
        if not frames:
            return
        rate = self._rates.get(task)
        if rate is None:
            self._track = self._track or self._canvas.track("Frame rates")
            track = self._canvas.track(f"{task} frames/s", self._track, unit="frames/s")
            counter = Counter(track)
            self._rates[task] = _Rate(counter, ns)
            return
        rate.frames += frames
        if ns - rate.since_ns >= RATE_NS:
            self._show(rate, ns)

    def _show(self, rate: _Rate, ns: int) -> None:
        value = rate.frames * 1e9 / (ns - rate.since_ns)
        self._canvas.put(rate.since_ns, rate.counter.at(value))
        rate.frames, rate.since_ns = 0, ns

    def end(self, ns: int) -> None:
        """The last stretches, however short, and nothing after them."""
        for rate in self._rates.values():
            if ns > rate.since_ns:
                self._show(rate, ns)
            self._canvas.put(max(ns, rate.since_ns), rate.counter.at(0.0))
