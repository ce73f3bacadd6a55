"""Methods that end with samples, measured: a fresh classifier is trained on the set, and all clients use that."""

from __future__ import annotations

from fedchord.engine.executors import Executor
from fedchord.evaluation.evaluate import Evaluation, Everyone, everyone, protocol
from fedchord.evaluation.fitted import Fitted
from fedchord.synthetic.learn import Judge, judged
from fedchord.synthetic.set import SyntheticSet, drawn


def judge(
    fitted: Fitted,
    recipe: Judge | None = None,
    split: str = "test",
    metrics: tuple[str, ...] | None = None,
    executor: Executor | None = None,
    ask: Everyone = everyone,
) -> tuple[Evaluation, SyntheticSet]:
    """What clients measure with the classifier trained on the server's set by one fixed recipe, and the set.

    The draw and the classifier have keys of the run's seed. `ask` is who measures all clients with one model.
    """
    work, made, recipe = fitted.work, drawn(fitted), recipe or Judge()
    learnt = judged(recipe, made, work.seed)
    device = work.federation.columns["x"].device
    model = {name: tensor.to(device) for name, tensor in learnt.model.items()}
    found, values, clients = ask(learnt.task.to(device), work.federation, model, split, metrics, executor)
    told = {"samples": len(made.y), "classifier": recipe.told(made.shape), "classifier_loss": learnt.loss}
    return Evaluation(protocol(fitted, split, len(clients)) | told, found, values, clients), made
