"""`@headway.fleet.remote(priority=9, reserve="6ms/10ms")`: `ray.remote` with a claim."""

from __future__ import annotations

import atexit
import inspect
import secrets
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from headway.fleet import joining
from headway.fleet.claims import KEYS, UNITS, Claim, ClaimError, read_claim

IDLE_S = 2.0
"""How long a function's claim is kept for its next call."""
LOOK_S = 0.05


def remote(*arguments: Any, **options: Any) -> Any:
    """A function or a class for Ray with a claim of GPU time. Options that are no keys of a claim
    are Ray's own. ClaimError says what is wrong with the claim, and whom it asks too much of."""
    if len(arguments) == 1 and callable(arguments[0]) and not options:
        return _made(arguments[0], {}, {})
    if arguments:
        raise ClaimError(
            "headway claim: expected its keys by name, such as @headway.fleet.remote(priority=9)"
        )
    claim = {key: options.pop(key) for key in KEYS if key in options}
    read_claim(claim)
    _check_options(options, claim)
    return lambda target: _made(target, claim, options)


def _check_options(options: dict[str, Any], claim: dict[str, Any]) -> None:
    taken = [key for key in ("scheduling_strategy", "label_selector") if key in options]
    if taken:
        raise ClaimError(
            f"headway claim: {taken[0]}: the placer chooses the node, expected labels={{…}}"
        )
    if claim.get("preemptible") and options.get("max_restarts") == 0:
        raise ClaimError(
            "headway claim: preemptible: found max_restarts=0, expected another number: what is "
            "moved is started again"
        )
    if (env := options.get("runtime_env")) and "headway" in env:
        raise ClaimError("headway claim: runtime_env: its headway key is what the keys here say")


def _made(target: Any, claim: dict[str, Any], options: dict[str, Any]) -> Any:
    given = {"name": target.__name__, **claim}
    return (Actor if inspect.isclass(target) else Function)(target, given, options)


class _Remote:
    """What has a claim and Ray's options."""

    def __init__(self, target: Any, claim: dict[str, Any], options: dict[str, Any]) -> None:
        self._target, self._words, self._options = target, claim, options
        self._claim = read_claim(claim)
        self.__name__ = target.__name__
        self.__doc__ = target.__doc__

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError(f"{self.__name__} runs on the cluster: call {self.__name__}.remote(…)")

    def options(self, **changes: Any) -> Any:
        """The same with other options: keys of the claim, or Ray's own. A name is the actor's."""
        actor_name = changes.pop("name", None) if isinstance(self, Actor) else None
        claim = self._words | {key: changes.pop(key) for key in KEYS if key in changes}
        if actor_name is not None:
            changes["name"] = actor_name
        read_claim(claim)
        _check_options(self._options | changes, claim)
        return type(self)(self._target, claim, self._options | changes)

    def _ray_options(self, answer: dict[str, Any], ticket: str) -> dict[str, Any]:
        ray = joining.ray()
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        options = dict(self._options)
        env = {"ticket": ticket, "gpu": answer["gpu"], **self._words}
        options["runtime_env"] = {**(options.get("runtime_env") or {}), "headway": env}
        resources = {**(options.get("resources") or {}), joining.CLAIMS: 1}
        if self._claim.units:
            resources[joining.RESOURCE] = self._claim.units / UNITS
        options["resources"] = resources
        options["scheduling_strategy"] = strategy(
            answer["node"], soft=True, _spill_on_unavailable=self._claim.preemptible
        )
        return options


class Actor(_Remote):
    """A class whose actors have a claim each."""

    def remote(self, *arguments: Any, **named: Any) -> Any:
        """An actor on the GPU that the placer chose. While no GPU can take the claim: a handle that
        waits with the claim (`Held`), and is the actor's as soon as there is one."""
        ticket = secrets.token_hex(16)
        answer = _ask(ticket, self._words, waits=False)

        def create(answer: dict[str, Any]) -> Any:
            options = self._ray_options(answer, ticket)
            if self._claim.preemptible:
                options.setdefault("max_restarts", -1)
                options.setdefault("max_task_retries", -1)
            actor = joining.ray().remote(self._target).options(**options)
            made = actor.remote(*arguments, **named)
            _placer().created.remote(ticket, made._actor_id.hex())
            return made

        if "waits" in answer:
            return Held(self._claim, ticket, self._words, answer["waits"], create)
        return create(answer)


class Held:
    """The handle of an actor for which there is no GPU yet. Calls of its methods wait for it."""

    def __init__(
        self,
        claim: Claim,
        ticket: str,
        words: dict[str, Any],
        why: str,
        create: Callable[[dict[str, Any]], Any],
    ) -> None:
        self._claim, self._ticket, self.why = claim, ticket, why
        self._actor: Any = None
        self._error: Exception | None = None
        self._done = threading.Event()
        self._given_up = threading.Event()
        print(f"headway claim: {claim.name} waits: {why}", file=sys.stderr, flush=True)
        atexit.register(_stopping.set)
        threading.Thread(
            target=self._wait, args=(words, create), name=f"headway {claim.name}", daemon=True
        ).start()

    def _wait(self, words: dict[str, Any], create: Callable[[dict[str, Any]], Any]) -> None:
        try:
            answer = _await(self._ticket, words, self._given_up)
            if answer is None:
                raise ClaimError(f"headway claim: {self._claim.name} was given up")
            self._actor = create(answer)
        except Exception as error:  # the caller's, when he asks
            self._error = error
        self._done.set()

    @property
    def is_placed(self) -> bool:
        return self._actor is not None

    def actor(self, timeout_s: float | None = None) -> Any:
        """Ray's own handle, once the claim has a GPU. TimeoutError says why it has none yet."""
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"headway claim: {self._claim.name} waits: {self.why}")
        if self._error is not None:
            raise self._error
        return self._actor

    def cancel(self) -> None:
        """Give the claim up."""
        self._given_up.set()
        self._done.wait(2 * LOOK_S)
        ray = joining.ray()
        ray.get(_placer().release.remote(self._ticket))
        if self._actor is not None:
            ray.kill(self._actor)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _LaterMethod(self, name)

    def __reduce__(self) -> Any:
        return _same, (self.actor(),)


def _same(value: Any) -> Any:
    return value


class _LaterMethod:
    """A method of an actor that waits for its GPU."""

    def __init__(self, held: Held, name: str, options: dict[str, Any] | None = None) -> None:
        self._held, self._name, self._options = held, name, options

    def options(self, **options: Any) -> _LaterMethod:
        return _LaterMethod(self._held, self._name, options)

    def remote(self, *arguments: Any, **named: Any) -> Any:
        method = getattr(self._held.actor(), self._name)
        if self._options is not None:
            method = method.options(**self._options)
        return method.remote(*arguments, **named)


class Function(_Remote):
    """A function whose calls run under a claim, each under one of its own at a time."""

    def __init__(self, target: Any, claim: dict[str, Any], options: dict[str, Any]) -> None:
        super().__init__(target, claim, options)
        self._free: list[tuple[float, str, dict[str, Any]]] = []
        """Claims of calls that are over, kept for the next one: its worker is there already."""
        self._lock = threading.Lock()

    def remote(self, *arguments: Any, **named: Any) -> Any:
        """Ray's reference to what the call returns. While no GPU can take the claim, this waits."""
        ticket, answer = self._claimed()
        ray = joining.ray()
        try:
            call = ray.remote(self._target).options(**self._ray_options(answer, ticket))
            made = call.remote(*arguments, **named)
        except BaseException:
            _placer().release.remote(ticket)
            raise
        _placer().created.remote(ticket, "")
        _follow(self, made, ticket, answer)
        return made

    def _claimed(self) -> tuple[str, dict[str, Any]]:
        told = False
        ticket = secrets.token_hex(16)
        while True:
            with self._lock:
                if self._free:
                    _, kept, answer = self._free.pop()
                    if told:
                        _placer().release.remote(ticket)
                    return kept, answer
            answer = _ask(ticket, self._words, waits=False)
            if "waits" not in answer:
                return ticket, answer
            if not told:
                told = True
                why = f"{self.__name__} waits: {answer['waits']}"
                print(f"headway claim: {why}", file=sys.stderr, flush=True)
            time.sleep(LOOK_S)

    @property
    def keeps(self) -> bool:
        """Whether it has claims of calls that are over."""
        return bool(self._free)

    def over(self, ticket: str, answer: dict[str, Any]) -> None:
        """A call is over: its claim is free for the next."""
        with self._lock:
            self._free.append((time.monotonic(), ticket, answer))

    def give_back(self, *, now: bool = False) -> None:
        """Claims that no call has wanted for a while."""
        before_s = time.monotonic() - (0.0 if now else IDLE_S)
        with self._lock:
            old = [one for one in self._free if one[0] <= before_s]
            self._free = [one for one in self._free if one[0] > before_s]
        for _, ticket, _ in old:
            _placer().release.remote(ticket)


# -- calls that are followed to their end ----------------------------------------------------------

_calls: dict[Any, tuple[Function, str, dict[str, Any]]] = {}
_functions: set[Function] = set()
_guard = threading.Lock()
_follower: threading.Thread | None = None
_stopping = threading.Event()
"""This process ends, and its threads must not use Ray any more."""


def _follow(function: Function, ref: Any, ticket: str, answer: dict[str, Any]) -> None:
    global _follower
    first = ref[0] if isinstance(ref, list) else ref
    with _guard:
        _calls[first] = function, ticket, answer
        _functions.add(function)
        if _follower is None or not _follower.is_alive():
            _follower = threading.Thread(target=_look, name="headway calls", daemon=True)
            _follower.start()
            atexit.unregister(_give_all_back)
            atexit.register(_give_all_back)


def _look() -> None:
    """Until there is nothing to follow: a thread that is there while Ray is shut down, and has
    anything of Ray's, may end the process."""
    global _follower
    ray = joining.ray()
    while not _stopping.wait(LOOK_S):
        with _guard:
            if not _calls and not any(function.keeps for function in _functions):
                _follower = None
                return
        try:
            if not ray.is_initialized():
                return
            _look_once(ray)
        except Exception:  # Ray is shut down, say: the placer sees that this driver is gone
            return


def _look_once(ray: Any) -> None:
    """Calls that are over free their claims; claims that no call wants are given back."""
    with _guard:
        refs, functions = list(_calls), list(_functions)
    done: list[Any] = []
    if refs:
        done, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
    for ref in done:
        with _guard:
            function, ticket, answer = _calls.pop(ref)
        function.over(ticket, answer)
    for function in functions:
        function.give_back()


def _give_all_back() -> None:
    _stopping.set()
    if _follower is not None:
        _follower.join(timeout=10 * LOOK_S)
    if joining.ray().is_initialized():
        for function in list(_functions):
            function.give_back(now=True)


# -- asking the placer -----------------------------------------------------------------------------


def _placer() -> Any:
    ray = joining.ray()
    if not ray.is_initialized():
        joining.connect()
    return joining.placer(ray)


def _ask(ticket: str, words: dict[str, Any], *, waits: bool) -> dict[str, Any]:
    """The placer's answer; ClaimError if no GPU of the cluster can ever take the claim."""
    return _read(joining.ray().get(_request(ticket, words, waits=waits)))


def _await(ticket: str, words: dict[str, Any], given_up: threading.Event) -> dict[str, Any] | None:
    """The placer's answer once there is a GPU; None if nobody wants it any more. For threads: they
    look now and then, for whoever waits in Ray while it is shut down ends the process."""
    ray = joining.ray()
    ref = _request(ticket, words, waits=True)
    while ray.is_initialized() and not _stopping.is_set():
        if ray.wait([ref], timeout=0)[0]:
            return _read(ray.get(ref))
        if given_up.wait(LOOK_S):
            return None
    return None


def _request(ticket: str, words: dict[str, Any], *, waits: bool) -> Any:
    job = joining.ray().get_runtime_context().get_job_id()
    return _placer().place.remote(ticket, words, job, waits=waits)


def _read(answer: dict[str, Any]) -> dict[str, Any]:
    if "refused" in answer:
        raise ClaimError(answer["refused"])
    return answer
