"""The predictor that is never wrong, for studies of a policy alone."""

from __future__ import annotations

from headway.engine.predictors import Context, Prediction, Predictor, Signature, predictor


@predictor("exact")
class Exact(Predictor):
    """The simulator knows the cost (TimeGraph §5.1 explains AE under this assumption)."""

    def predict(self, signature: Signature, context: Context) -> Prediction:
        return Prediction(signature, context.exact_ns, hit=True)

    def observe(self, prediction: Prediction, executed_ns: int, context: Context) -> None:
        pass
