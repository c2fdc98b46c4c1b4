"""Calls into the code of policies, which may be anybody's: what fails there is told, and the engine
goes on by a safe answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headway.engine.policies import Policy, PolicyError

if TYPE_CHECKING:
    from headway.engine.core import Engine
    from headway.engine.model import Gpu, Group, Task

OnFailure = Callable[[PolicyError], None]


class PolicyCalls:
    """Asks the policies, and tells them what happens."""

    def __init__(self, engine: Engine, on_failure: OnFailure | None) -> None:
        """Without `on_failure` an error in a policy is raised."""
        self._engine = engine
        self._on_failure = on_failure

    def admits(self, group: Group, gpu: Gpu) -> bool:
        """Whether the group may go; not, if that fails."""
        policy = group.task.policy
        try:
            return policy.admits(group, gpu, self._engine)
        except Exception as error:
            self._failed(policy, "admits", error)
            return False

    def key(self, task: Task) -> int:
        """What the task's policy says of its place; the rank, if that fails."""
        return self._number(task.policy, "key", task.rank, task)

    def quantum_ns(self, task: Task, usual_ns: int) -> int:
        """How long the task keeps its turn while equals wait; as usual, if that fails."""
        return max(
            1, self._number(task.policy, "quantum_ns", usual_ns, task, usual_ns, self._engine)
        )

    def wake_ns(self, policy: Policy, now_ns: int) -> int | None:
        """When the policy wants to be asked again; not, if that fails."""
        try:
            time_ns = policy.wake_ns(now_ns)
            if time_ns is not None and (type(time_ns) is not int or time_ns <= now_ns):
                raise ValueError(f"expected a time after {now_ns} or None, found {time_ns!r}")
        except Exception as error:
            self._failed(policy, "wake_ns", error)
            return None
        return time_ns

    def tell(self, hook: str, policy: Policy, what: Group | Task) -> None:
        """Something happened to a task of this policy."""
        try:
            getattr(policy, hook)(what, self._engine)
        except Exception as error:
            self._failed(policy, hook, error)

    def _number(self, policy: Policy, hook: str, otherwise: int, *args: Any) -> int:
        try:
            number = getattr(policy, hook)(*args)
            if type(number) is not int:
                raise TypeError(f"expected an integer, found {number!r}")
        except Exception as error:
            self._failed(policy, hook, error)
            return otherwise
        return number

    def _failed(self, policy: Policy, hook: str, error: Exception) -> None:
        failure = PolicyError(policy, hook, error)
        if self._on_failure is None:
            raise failure from error
        self._on_failure(failure)
