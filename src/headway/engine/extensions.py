"""Calls into policies and cost models, whose code may be anybody's: the engine tells what fails
there, and goes on with a safe answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headway.engine.cost_models import Conditions, CostModel
from headway.engine.cost_models.recent import Recent
from headway.engine.policies import Policy
from headway.engine.registry import ExtensionError

if TYPE_CHECKING:
    from headway.engine.core import Engine
    from headway.engine.model import Gpu, Group, Measurement, Task

OnFailure = Callable[[ExtensionError], None]


class ExtensionCalls:
    """Asks policies and cost models, and tells them what happens."""

    def __init__(self, engine: Engine, on_failure: OnFailure | None) -> None:
        """Without `on_failure` an error in their code is raised."""
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

    def predict(self, group: Group | Measurement, conditions: Conditions) -> tuple[int, int]:
        """The expected cost of a group and its bound; nothing, and another cost model from now on,
        if that fails."""
        task = group.task
        try:
            found = task.cost_model.predict(group, conditions)
            expected_ns, bound_ns = found.expected_ns, found.bound_ns
            if type(expected_ns) is not int or type(bound_ns) is not int or expected_ns < 0:
                raise TypeError(f"expected whole nanoseconds, not below 0, found {found!r}")
        except Exception as error:
            self._model_failed(task, "predict", error)
            return 0, 0
        return expected_ns, max(expected_ns, bound_ns)

    def observe(self, group: Group | Measurement, conditions: Conditions, executed_ns: int) -> None:
        """A group of a task is done: the task's cost model learns from that."""
        task = group.task
        try:
            task.cost_model.observe(group, conditions, executed_ns)
        except Exception as error:
            self._model_failed(task, "observe", error)

    def _model_failed(self, task: Task, hook: str, error: Exception) -> None:
        model: CostModel = task.cost_model
        task.own_model = Recent()
        task.use_cost_model(task.own_model)
        self._tell_failure(ExtensionError("cost model", model.name, hook, error), error)

    def _failed(self, policy: Policy, hook: str, error: Exception) -> None:
        self._tell_failure(ExtensionError("policy", policy.name, hook, error), error)

    def _tell_failure(self, failure: ExtensionError, error: Exception) -> None:
        if self._on_failure is None:
            raise failure from error
        self._on_failure(failure)
