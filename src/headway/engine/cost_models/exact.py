"""The cost model that is never wrong, for studies of a policy alone."""

from __future__ import annotations

from headway.engine.cost_models import Conditions, CostModel, Prediction, Work, cost_model


@cost_model("exact")
class Exact(CostModel):
    """The simulator knows the cost (TimeGraph §5.1 explains AE under this assumption)."""

    learns = False

    def predict(self, work: Work, conditions: Conditions) -> Prediction:
        return Prediction(work.exact_ns, work.exact_ns)

    def observe(self, work: Work, conditions: Conditions, executed_ns: int) -> None:
        pass
