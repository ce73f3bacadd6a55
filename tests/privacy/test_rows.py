"""Privacy of rows: gradients against another library's, sampling, accounting, and which rules it goes with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.federations import make_federation
from helpers.remote import FEDERATION, QUICK, SECRET, plan_of
from opacus.accountants import RDPAccountant
from opacus.grad_sample import GradSampleModule
from scipy import stats
from torch import nn

from fedchord import Task, Training, catalog, rng, simulate
from fedchord.check import FedchordError
from fedchord.clients.apfl import Apfl
from fedchord.core.objective import BINARY, CLASSIFICATION
from fedchord.core.records import Phase, RoundInfo, Visit
from fedchord.core.round import Plan, open_run, round_info
from fedchord.data.alone import alone
from fedchord.engine.work import Work
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute
from fedchord.models import TwoNN
from fedchord.privacy.allowed import refused
from fedchord.privacy.rows import PLANNED, Course, Hiding, PoissonStream, RowTask
from fedchord.privacy.shield import shield
from fedchord.privacy.terms import Privacy
from fedchord.remote.checking import signed
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.memory import NEVER
from fedchord.remote.node import Node
from fedchord.remote.parcel import Parcel
from fedchord.remote.serve import serve
from fedchord.tensors import clone

ROWS = Privacy(level="rows", noise=1.5, clip=0.7)


def hiding(noise: float = 0.0, clip: float = 0.7, **more) -> Hiding:
    return Hiding(clip, Course((10,), 4, ((5,),), 1e-5, given=noise), **more)


class Small(nn.Module):
    """Convolution and GroupNorm, so that no shortcut for stacks of Linear applies."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4 * 36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))


@pytest.mark.parametrize("clip", [0.7, 1e6])
def test_gradients_are_those_of_opacus_clipped_row_by_row_and_summed(clip):
    module = Small()
    task = RowTask(Task(module), hiding(clip=clip))
    x, y = torch.randn(9, 1, 8, 8), torch.randint(0, 3, (9,))
    theta = task.init(0)["theta"]
    batch = {"x": x, "y": y, PLANNED: torch.tensor(4.0)}
    found, _ = task.grad(theta, torch.zeros(0), batch, 1)
    whole = Task(module).grad(theta, torch.zeros(0), {"x": x, "y": y}, 1)[0]
    wrapped = GradSampleModule(module, loss_reduction="sum")
    F.cross_entropy(wrapped(x.clone().requires_grad_()), y, reduction="sum").backward()
    each = torch.cat([p.grad_sample.flatten(1) for p in wrapped.parameters()], 1)
    by_hand = sum(row * min(1.0, clip / row.norm()) for row in each) / 4
    assert torch.allclose(found, by_hand, atol=1e-5)
    assert (each.norm(dim=1) > 0.7).any()
    if clip > 1:  # nothing is clipped: the gradient of the sum
        assert torch.allclose(found, whole * 9 / 4, atol=1e-5)


@pytest.mark.parametrize("model", [TwoNN(inputs=5, hidden=7, classes=3), nn.Sequential(nn.Flatten(), nn.Linear(5, 1))])
def test_stacks_of_linear_layers_have_the_same_gradients_without_writing_them_down(model):
    binary = model[-1].out_features == 1
    plain = Task(model, BINARY if binary else CLASSIFICATION)
    assert plain.dense is not None
    other = Task(model, plain.objective, dense=False)
    x, y = torch.randn(300, 5), torch.randint(0, 2 if binary else 3, (300,))
    batch = {"x": x, "y": y, PLANNED: torch.tensor(4.0)}
    theta = plain.init(0)["theta"]
    for clip in (0.3, 1e6):
        fast, slow = (
            RowTask(task, hiding(clip=clip)).grad(theta, torch.zeros(0), batch, 1)[0] for task in (plain, other)
        )
        assert torch.allclose(fast, slow, atol=1e-4)


def test_noise_has_the_std_of_the_clip_over_the_planned_batch_also_without_rows():
    big = Task(lambda: TwoNN(inputs=40, hidden=120, classes=10))
    task = RowTask(big, hiding(noise=2.0))
    theta = task.init(0)["theta"]
    none = {"x": torch.zeros(0, 40), "y": torch.zeros(0, dtype=torch.int64), PLANNED: torch.tensor(4.0)}
    noise = task.grad(theta, torch.zeros(0), none, 5)[0].double().numpy()
    assert stats.kstest(noise / (2.0 * 0.7 / 4), "norm").pvalue > 0.01
    assert np.array_equal(noise, task.grad(theta, torch.zeros(0), none, 5)[0])
    assert abs(np.corrcoef(noise, task.grad(theta, torch.zeros(0), none, 6)[0])[0, 1]) < 0.03
    own = RowTask(big, hiding(noise=2.0, secret=b"own"))
    first, moved = (own.grad(theta + shift, torch.zeros(0), none, 5)[0] for shift in (0.0, 1.0))
    assert not torch.allclose(first, moved)  # asked at another point, the noise is another


def test_rows_are_drawn_independently_with_the_same_chance():
    federation = make_federation([40, 7])
    work = shielded("fedavg", federation, ROWS)
    seen, sizes, rows = np.zeros(40), [], federation.columns["x"][federation.train[0]]
    for round in range(60):
        for batch in work.stream(0, round).batches(0, Phase(steps=10)):
            found = (rows[:, None] == batch["x"][None]).all(2).any(1) if len(batch["x"]) else torch.zeros(40)
            seen += found.numpy()
            sizes.append(len(batch["x"]))
    assert stats.chisquare(seen, np.full(40, seen.sum() / 40)).pvalue > 0.01
    assert abs(np.mean(sizes) - 4) < 0.25 and abs(np.var(sizes) - 3.6) < 0.6 and min(sizes) == 0
    whole = next(iter(shielded("fedavg", federation, ROWS, batch=0).stream(0, 0).batches(0, Phase(steps=1))))
    assert len(whole["x"]) == 40 == float(whole[PLANNED])


def shielded(method: str, federation, privacy: Privacy, batch: int = 4, **more) -> Work:
    task, plan = Task(lambda: TwoNN(inputs=6, hidden=5, classes=3)), Plan(4, 2, seed=1)
    training = Training(batch=batch, lr=0.1)
    hidden = shield(catalog.build(method, more), privacy, task, federation, plan, training)
    parts = (hidden.guards, False, hidden.hiding)
    return Work.of(hidden.algorithm, hidden.task, federation, training, 1, "cpu", *parts)


def test_every_client_has_an_epsilon_of_its_own_and_the_noise_is_for_the_worst():
    federation, privacy = make_federation([100, 20, 57]), replace(ROWS, noise=None, epsilon=3.0)
    course = shielded("fedavg", federation, privacy, batch=5).hiding.course
    for size, found in zip((100, 20, 57), course.by_client(), strict=True):
        theirs = RDPAccountant()
        theirs.history = [(course.noise, 5 / size, 4 * -(-size // 5))]  # 4 rounds of one epoch
        assert found == pytest.approx(theirs.get_epsilon(1e-5), rel=0.01)
    assert 2.95 < max(course.by_client()) <= 3 and course.after(4) == max(course.by_client()) > course.after(1)


def test_several_gradients_of_a_batch_cost_as_one_longer_one():
    one, four = (Course((50,), 5, ((30,),), 1e-5, gradients=k, given=2.0 * k**0.5) for k in (1, 4))
    assert one.after(1) == pytest.approx(four.after(1))


def test_a_course_goes_on_beyond_its_plan_in_proportion():
    """Two rounds of 10 steps and one of 5: a fourth round is taken for a third of 25 more, rounded up to 34 steps."""
    course = Course((50,), 5, ((10, 20, 25),), 1e-5, given=2.0)
    for rounds, steps in ((1, 10), (3, 25), (4, 34), (6, 50)):
        theirs = RDPAccountant()
        theirs.history = [(2.0, 0.1, steps)]
        assert course.after(rounds) == pytest.approx(theirs.get_epsilon(1e-5), rel=0.01)


METHODS = [name for name in catalog.METHODS if not refused(catalog.build(name), "rows")]


def test_which_methods_hide_rows():
    assert {"fedavg", "fedprox", "superfed-mm", "superfed-lm", "ditto", "fedavg-ft", "apfl", "pfedme"} <= set(METHODS)
    for name in ("local", "q-fedavg", "propfair-loss", "fedevg", "fedcvae", "fedcgan", "aaggff-p"):
        assert name not in METHODS


@pytest.mark.parametrize("method", [name for name in METHODS if name != "fedevg-witness"])
def test_what_leaves_depends_on_rows_by_hidden_gradients_alone(method):
    """With all gradients cut to nothing and no noise, rows must not matter; and as many are asked for as is said."""
    federations = [make_federation([9, 12], seed=seed) for seed in (1, 2)]
    nothing = replace(ROWS, clip=1e-30, noise=0.0)
    sent = []
    for federation in federations:
        work = shielded(method, federation, nothing)
        work.task.asked = 0
        state = work.algorithm.client.opening(work.task, 3)
        info = info_of(work)
        upload, _, _ = work.run(0, state, None, info)
        sent.append(torch.cat([part.flatten() for part in (*upload.mix.values(), *upload.mean.values())]))
        phases = work.algorithm.client.phases(Visit(work.task, {}, {}, info, 0, 9))
        steps = sum(work.stream(0, 0).steps(phase) for phase in phases if not phase.stays)
        assert work.task.asked == steps * work.algorithm.client.gradients
        assert upload.log.means == {} == upload.log.sums
    assert torch.equal(*sent)


def info_of(work: Work) -> RoundInfo:
    return round_info(Plan(4, 2, seed=1), work.training, 2, 3, 2)


@pytest.mark.parametrize(("method", "entry", "learns"), [("ditto", "v", True), ("superfed-mm", "own", False)])
def test_a_model_trained_apart_learns_without_noise_and_one_on_the_line_does_not(method, entry, learns):
    kept = []
    for seed in (1, 2):
        work = shielded(method, make_federation([30, 30], seed=seed), replace(ROWS, clip=1e-30, noise=0.0))
        state = work.algorithm.client.opening(work.task, 3)
        kept.append(work.run(0, state, None, info_of(work))[1][entry])
    assert torch.equal(*kept) is not learns  # other rows make another model of one's own, or they do not


def test_a_rule_that_asks_for_more_than_it_says_is_refused(monkeypatch):
    monkeypatch.setattr(Apfl, "gradients", 1)
    work = shielded("apfl", make_federation([9, 9]), ROWS)
    with pytest.raises(
        FedchordError, match=r"Apfl: asked for 6 gradients of 3 batches, and `gradients` says 1 of each"
    ):
        work.run(0, work.algorithm.client.opening(work.task, 3), None, info_of(work))


def test_executors_agree_and_vectorised_is_refused():
    federation = make_federation([9, 5, 7])

    def last(executor: str) -> torch.Tensor:
        settings = {"rounds": 2, "cohort": 2, "seed": 4, "training": Training(batch=4, lr=0.3), "privacy": ROWS}
        task = Task(lambda: TwoNN(inputs=6, hidden=5, classes=3))
        *_, found = simulate(catalog.build("superfed-mm"), task, federation, executor=executor, workers=2, **settings)
        return found.state.broadcast["theta"]

    assert torch.equal(last("serial"), last("processes"))
    with pytest.raises(FedchordError, match="batches of rows that are hidden have random sizes"):
        last("vectorised")


def test_nodes_draw_rows_and_noise_by_their_secret(tmp_path):
    plan = plan_of("fedavg", privacy="rows", privacy__noise=1.0, privacy__clip=0.5)
    served = [
        serve(plan, Direct(nodes_of(plan, FEDERATION, tmp_path / str(i), secret)), service=QUICK)
        for i, secret in enumerate((SECRET, SECRET, b"another"))
    ]
    for run in served:
        run.finish()
    first, again, other = (run.fitted.state.broadcast["theta"] for run in served)
    assert torch.equal(first, again) and not torch.allclose(first, other)
    stream = [
        PoissonStream(FEDERATION, 1, 5, rng.key(1, "batches"), secret=s).batches(0, Phase(steps=8))
        for s in (b"a", b"b")
    ]
    assert [len(b["y"]) for b in stream[0]] != [len(b["y"]) for b in stream[1]]
    with pytest.raises(FedchordError, match="node: privacy=rows needs a secret of the node, for its noise"):
        Node(plan, 0, alone(FEDERATION, 0), tmp_path / "none")


@pytest.mark.parametrize("method", ["fedavg", "fedevg-witness"])
def test_a_node_answers_one_question_in_a_round_whatever_a_server_asks(method, tmp_path):
    """Each answer is one of those whose costs were added up. The same question has the same answer, which costs
    nothing more; that is what a server asks again that was killed."""
    given = {"method__iterations": 0} if method == "fedevg-witness" else {}
    hiding = plan_of(method, privacy="rows", privacy__noise=1.0, **given)
    broadcast = open_run(
        hiding.algorithm, hiding.work(alone(FEDERATION, 0), (), SECRET).task, 4, hiding.course
    ).broadcast
    moved = {name: tensor + 0.1 for name, tensor in broadcast.items()}

    def asked(node, tensors, round=0, **more):
        facts = signed(node.plan, **({"round": round, "counted": NEVER, "cohort": 2} | more))
        return node.answer("train", Parcel(clone(tensors), facts)).tensors

    node = Node(hiding, 0, alone(FEDERATION, 0), tmp_path / "hiding", secret=SECRET)
    first = asked(node, broadcast)
    for tensors, more in ((moved, {}), (broadcast, {"cohort": 3})):
        with pytest.raises(FedchordError, match="privacy: round 1 was answered before, to another question"):
            asked(node, tensors, **more)
    again = Node(hiding, 0, alone(FEDERATION, 0), tmp_path / "hiding", secret=SECRET)  # it remembers after a restart
    assert all(torch.equal(asked(again, broadcast)[name], first[name]) for name in first)
    with pytest.raises(FedchordError, match="privacy: round 1 was answered before"):
        asked(again, moved)
    assert asked(again, moved, round=1)
    plain = Node(plan_of(method, **given), 0, alone(FEDERATION, 0), tmp_path / "plain", secret=SECRET)
    assert asked(plain, broadcast) and asked(plain, moved)


def test_a_run_tells_the_epsilon_of_every_client():
    pairs = ["clients=4", "cohort=all", "rounds=2", "model=logreg", "executor=serial", "privacy=rows", "lr=0.2"]
    summary = execute(RunConfig.from_pairs([*pairs, "privacy.epsilon=6", "batch=30"]))
    told = summary["privacy"]
    assert len(told["by_client"]) == 4 and told["epsilon"] == max(told["by_client"]) and 5.9 < told["epsilon"] <= 6
