"""AFL, q-FedAvg, TERM, FedMGDA+ and PropFair against their papers' formulas, and the thesis' unification table."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import quadprog
import torch
from helpers.cohorts import cohort, info
from helpers.federations import make_federation
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchord import catalog, rng, run
from fedchord.check import FedchordError
from fedchord.clients.propfair import PropFairLoss
from fedchord.core.local import local_round
from fedchord.core.round import Plan, open_run
from fedchord.core.rules import Phase
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.simulate import simulate
from fedchord.mixing.aaggff import AAggFFDevice, AAggFFSilo
from fedchord.mixing.afl import Afl
from fedchord.mixing.fedmgda import FedMgda
from fedchord.mixing.propfair import PropFair
from fedchord.mixing.qfedavg import QFedAvg
from fedchord.mixing.static import BySize, Uniform
from fedchord.mixing.term import Term
from fedchord.models import TwoNN

LOSSES, SIZES = [0.4, 1.7, 0.9, 2.2], [10, 40, 20, 5]


def shares(rule, losses=LOSSES, sizes=SIZES, **options):
    return rule.weigh(rule.init(len(losses)), cohort(losses, sizes=sizes, **options), info(clients=len(losses)))[
        0
    ].shares


# -- the unification table -------------------------------------------------------------------------------------------


def exponentiated(response, zeta=1.0):
    """argmin over the simplex of -<p, r> + zeta KL(p || n / sum n): the n_i exp(r_i / zeta), as the table has it."""
    powers = [n * math.exp(r / zeta) for n, r in zip(SIZES, response, strict=True)]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize(
    ("rule", "response", "zeta"),
    [
        (BySize(), [0.0] * 4, 1.0),
        (QFedAvg(q=2.5, form="coefficients"), [2.5 * math.log(f) for f in LOSSES], 1.0),
        (Term(tilt=0.7), LOSSES, 1 / 0.7),
        (PropFair(M=3.0), [-math.log(3.0 - f) for f in LOSSES], 1.0),
    ],
)
def test_rows_of_the_table(rule, response, zeta):
    assert shares(rule).tolist() == pytest.approx(exponentiated(response, zeta), abs=1e-14)


def test_limits_of_the_table():
    by_size, top = shares(BySize()).tolist(), [0.0, 0.0, 0.0, 1.0]
    assert shares(QFedAvg(q=0, form="coefficients")).tolist() == pytest.approx(by_size)
    assert shares(Term(tilt=0)).tolist() == pytest.approx(by_size)
    assert shares(PropFair(M=1e9)).tolist() == pytest.approx(by_size)
    assert shares(QFedAvg(q=500, form="coefficients")).tolist() == pytest.approx(top, abs=1e-12)
    assert shares(Term(tilt=500)).tolist() == pytest.approx(top, abs=1e-12)
    climb = Afl(gamma=1e6)
    _, state = climb.weigh(climb.init(4), cohort(LOSSES), info(clients=4))
    assert state["p"].tolist() == pytest.approx(top)


# -- AFL -------------------------------------------------------------------------------------------------------------


def test_afl_projects_the_climb():
    """Weights of a round are those before it; then p + gamma F is projected (by quadprog)."""
    rule, p = Afl(gamma=0.2), np.full(4, 0.25)
    state = rule.init(4)
    for t in range(12):
        order = [2, 0, 3, 1]
        mix, state = rule.weigh(state, cohort([LOSSES[i] for i in order], ids=order), info(t, 4))
        assert mix.shares.tolist() == pytest.approx(p[order], abs=1e-9) and torch.equal(mix.coefficients, mix.shares)
        constraints = np.concatenate([np.ones((1, 4)), np.eye(4)]).T
        p = quadprog.solve_qp(np.eye(4), p + 0.2 * np.array(LOSSES), constraints, np.array([1.0, 0, 0, 0, 0]), 1)[0]
    assert p[3] > 0.9


def test_afl_needs_everybody():
    rule = Afl()
    with pytest.raises(FedchordError, match=r"^Afl: needs every client in every round, got 2 of 4; use q-fedavg"):
        rule.weigh(rule.init(4), cohort([1.0, 2.0]), info(0, 4, 2))
    with pytest.raises(FedchordError, match=r"^Afl: needs every client .* cohort 3 of 6; use q-fedavg"):
        open_run(catalog.build("afl"), Task(lambda: TwoNN(6, 5, 3)), 6, Plan(2, 3))


# -- q-FedAvg --------------------------------------------------------------------------------------------------------

UPDATES = [[1.0, 0.0, 0.5], [0.2, -1.0, 0.0], [0.0, 0.3, 0.3], [-0.5, 0.1, 1.0]]


@pytest.mark.parametrize("q", [0.0, 0.1, 1.0, 5.0])
def test_qfedavg_takes_the_step_of_the_paper(q):
    """Algorithm 2 of the paper on theta itself, with L = 1 / lr."""
    lr, theta, updates = 0.2, np.array([0.3, -0.7, 1.0]), np.array(UPDATES)
    local = theta + updates
    big = 1 / lr
    deltas = [f**q * big * (theta - w) for f, w in zip(LOSSES, local, strict=True)]
    heights = [
        q * f ** (q - 1) * np.linalg.norm(big * (theta - w)) ** 2 + big * f**q
        for f, w in zip(LOSSES, local, strict=True)
    ]
    expected = theta - sum(deltas) / sum(heights)
    seen = cohort(LOSSES, sizes=SIZES, updates=UPDATES)
    mix, _ = QFedAvg(q=q).weigh({}, seen, info(clients=4, lr=lr))
    assert theta + mix.coefficients.numpy() @ updates == pytest.approx(expected, abs=1e-12)
    assert mix.shares.tolist() == pytest.approx([f**q / sum(g**q for g in LOSSES) for f in LOSSES])


def test_qfedavg_without_q_has_uniform_weights():
    seen = cohort(LOSSES, sizes=SIZES, updates=UPDATES)
    mix, _ = QFedAvg(q=0).weigh({}, seen, info(clients=4))
    uniform, _ = Uniform().weigh({}, seen, info(clients=4))
    assert mix.coefficients.tolist() == pytest.approx(uniform.coefficients.tolist(), abs=1e-15)


def test_qfedavg_with_zero_and_huge_losses_stays_finite():
    for q in (0.0, 0.1, 1.0, 5.0, 300.0):
        for losses in ([0.0] * 4, [0.0, 1.0, 2.0, 3.0], [math.inf, 1, 2, math.nan], [1e200, 1, 2, 3]):
            mix, _ = QFedAvg(q=q).weigh({}, cohort(losses, sizes=SIZES, updates=UPDATES), info(clients=4))
            assert mix.coefficients.isfinite().all() and abs(float(mix.shares.sum()) - 1) < 1e-12


@pytest.mark.parametrize(("form", "needs"), [("paper", {"loss", "norm"}), ("coefficients", {"loss"})])
def test_qfedavg_asks_for_what_its_form_uses(form, needs):
    """With exactly that, and no more, it weighs as with everything."""
    rule, everything = QFedAvg(q=2.0, form=form), cohort(LOSSES, sizes=SIZES, updates=UPDATES)
    assert rule.needs == needs
    norms = everything.norms if "norm" in rule.needs else None
    mix, _ = rule.weigh({}, replace(everything, norms=norms, gram=None), info(clients=4))
    assert torch.equal(mix.coefficients, rule.weigh({}, everything, info(clients=4))[0].coefficients)


# -- FedMGDA+ --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0])
def test_fedmgda_is_the_shortest_mix(epsilon):
    updates = np.array(UPDATES)
    units = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    static = np.array(SIZES) / sum(SIZES)
    constraints = np.concatenate([np.ones((1, 4)), np.eye(4), -np.eye(4)]).T
    bounds = np.concatenate([[1.0], np.maximum(static - epsilon, 0), -(static + epsilon)])
    ridge = 1e-9 * np.eye(4)
    expected = quadprog.solve_qp(units @ units.T + ridge, 1e-9 * static, constraints, bounds, 1)[0]
    mix, _ = FedMgda(epsilon).weigh({}, cohort(sizes=SIZES, updates=UPDATES), info(clients=4))
    assert mix.shares.numpy() == pytest.approx(expected, abs=1e-6)
    length = np.linalg.norm(updates, axis=1).mean()
    assert mix.coefficients.numpy() @ updates == pytest.approx(length * expected @ units, abs=1e-6)
    mix, _ = FedMgda(epsilon, "unit").weigh({}, cohort(sizes=SIZES, updates=UPDATES), info(clients=4))
    assert mix.coefficients.numpy() @ updates == pytest.approx(expected @ units, abs=1e-6)


def test_fedmgda_harms_no_client_when_it_may_choose_freely():
    """At the least norm, the mix has an inner product of at least its squared norm with every unit update."""
    mix, _ = FedMgda(1.0, "unit").weigh({}, cohort(sizes=SIZES, updates=UPDATES), info(clients=4))
    updates = torch.tensor(UPDATES, dtype=torch.float64)
    step = mix.coefficients @ updates
    units = updates / updates.norm(dim=1, keepdim=True)
    assert (units @ step >= step @ step - 1e-8).all()


def test_fedmgda_edges():
    static = [n / sum(SIZES) for n in SIZES]
    mix, _ = FedMgda(0.0).weigh({}, cohort(sizes=SIZES, updates=UPDATES), info(clients=4))
    assert mix.shares.tolist() == pytest.approx(static, abs=1e-12)
    zeros = [UPDATES[0], [0.0] * 3, UPDATES[2], UPDATES[3]]
    mix, _ = FedMgda(1.0).weigh({}, cohort(sizes=SIZES, updates=zeros), info(clients=4))
    assert mix.shares[1] == static[1] and abs(float(mix.shares.sum()) - 1) < 1e-12 and mix.coefficients.isfinite().all()
    for same in ([[0.0] * 3] * 4, [UPDATES[0]] * 4):
        mix, _ = FedMgda(0.5).weigh({}, cohort(sizes=SIZES, updates=same), info(clients=4))
        assert mix.shares.tolist() == pytest.approx(static, abs=1e-6)
    mix, _ = FedMgda().weigh({}, cohort(updates=[[3.0, 4.0]]), info(clients=1))
    assert mix.coefficients.tolist() == [1.0]


# -- PropFair --------------------------------------------------------------------------------------------------------


def test_propfair_guards_losses_above_m():
    mix, _ = PropFair(M=2.0).weigh({}, cohort([0.5, 1.9, 5.0], sizes=[1, 1, 2]), info())
    powers = [1 / 1.5, 1 / 0.2, 2 / 0.2]
    assert mix.shares.tolist() == pytest.approx([power / sum(powers) for power in powers])
    assert mix.log == {"guarded": 2.0}


def log_guarded(u, guard):
    return torch.log(u) if u >= guard else math.log(guard) + (u - guard) / guard


@pytest.mark.parametrize("top", [0.9, 1.35, 3.0, 30.0])
def test_propfair_as_a_loss_matches_a_plain_loop(top):
    federation, training = make_federation([13, 20]), Training(batch=4, lr=0.1)
    torch.manual_seed(1)
    module = TwoNN(6, 5, 3)
    task = Task(module)
    start = task.init(0)
    stream = ClientStream(federation, 1, 4, rng.key(1, "batches"))
    upload, _, _ = local_round(PropFairLoss(M=top), task, training, start, {}, stream, info(), 1, 2)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    sides = set()
    for batch in ClientStream(federation, 1, 4, rng.key(1, "batches")).batches(0, Phase()):
        room = top - torch.nn.functional.cross_entropy(module(batch["x"]), batch["y"])
        sides.add(bool(room < 0.2))
        optimiser.zero_grad()
        (-log_guarded(room, 0.2)).backward()
        optimiser.step()
    after = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    assert torch.allclose(upload.mix["theta"], after - start["theta"], atol=2e-6)
    assert sides == {0.9: {True}, 1.35: {True, False}, 3.0: {False}, 30.0: {False}}[top]


@pytest.mark.parametrize("executor", ["serial", "vectorised"])
@pytest.mark.parametrize(("top", "share"), [(0.05, 1.0), (1.35, None), (50.0, 0.0)])
def test_guarded_batches_are_counted_in_the_results(top, share, executor):
    """All, some, none: 13 and 20 rows in batches of 4 are 4 + 5 batches an epoch, and there are 2 epochs."""
    task, training = Task(lambda: TwoNN(6, 5, 3)), Training(epochs=2, batch=4, lr=0.01)
    settings = {"rounds": 2, "seed": 1, "training": training, "executor": executor}
    algorithm = catalog.build("propfair-loss", {"M": top})
    for result in simulate(algorithm, task, make_federation([13, 20]), **settings):
        counted = result.log["guarded"]
        assert counted == 18 * share if share is not None else 0 < counted < 18


# -- what they ask for -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(isinstance(vars(QFedAvg).get("needs"), frozenset), reason="q-FedAvg asks the same in both forms")
def test_each_form_of_q_fedavg_asks_for_what_it_uses():
    """The norms of the updates are in the paper's formula alone; so the other form weighs clients that send nothing."""
    assert set(QFedAvg().needs) == {"loss", "norm"} and set(QFedAvg(form="coefficients").needs) == {"loss"}
    with pytest.raises(FedchordError, match="QFedAvg compares what clients send and cannot be used with Local"):
        catalog.build("local", mixing="q-fedavg")
    algorithm = catalog.build("local", mixing="q-fedavg", mixing_parameters={"form": "coefficients"})
    task, federation = Task(lambda: TwoNN(6, 5, 3)), make_federation([13, 20])
    result = next(simulate(algorithm, task, federation, rounds=1, training=Training(batch=4), executor="serial"))
    assert result.losses is not None and float(result.shares.sum()) == pytest.approx(1)


# -- all of them -----------------------------------------------------------------------------------------------------

RULES = [Afl(), QFedAvg(q=2), QFedAvg(form="coefficients"), Term(tilt=3), FedMgda(), PropFair(), AAggFFSilo()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize(
    "losses", [[math.nan, 1, 2, 3], [math.inf, 1, 2, 3], [0, 0, 0, 0], [1e300, 1, 2, 3], [math.nan] * 4]
)
def test_odd_losses_are_survived_and_counted(rule, losses):
    mix, state = rule.weigh(rule.init(4), cohort(losses, sizes=SIZES, updates=UPDATES), info(clients=4))
    mix, _ = rule.weigh(state, cohort(losses, sizes=SIZES, updates=UPDATES), info(1, clients=4))
    assert mix.coefficients.isfinite().all() and (mix.shares >= 0).all() and abs(float(mix.shares.sum()) - 1) < 1e-12
    odd = sum(not math.isfinite(x) for x in losses)
    assert mix.log.get("odd_losses", 0) == (0 if isinstance(rule, FedMgda) else odd)


@pytest.mark.parametrize("rule", [*RULES, AAggFFDevice()], ids=lambda rule: type(rule).__name__)
def test_a_client_that_is_there_twice_is_refused_and_a_single_one_is_fine(rule):
    name = type(rule).__name__
    with pytest.raises(FedchordError, match=f"^{name}: a client may be in a cohort once, got client 2 twice$"):
        rule.weigh(rule.init(4), cohort(LOSSES, [0, 2, 1, 2], SIZES, UPDATES), info(clients=4))
    for loss in (0.7, 0.0, math.nan, math.inf):
        mix, _ = rule.weigh(rule.init(1), cohort([loss], sizes=[3], updates=[[1.0, 2.0]]), info(clients=1))
        assert mix.shares.tolist() == [1.0] and mix.coefficients.isfinite().all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 50), min_size=1, max_size=8), st.integers(0, 100))
def test_weights_lie_on_the_simplex_and_follow_the_clients(losses, seed):
    """For any losses; and the order in which clients report is irrelevant."""
    count = len(losses)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    updates = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed)).tolist()
    sizes = [1 + (7 * i) % 5 for i in range(count)]
    for rule in RULES:
        a, state = rule.weigh(rule.init(count), cohort(losses, sizes=sizes, updates=updates), info(clients=count))
        picked = [[x[i] for i in order] for x in (losses, sizes, updates)]
        b, other = rule.weigh(
            rule.init(count), cohort(picked[0], ids=order, sizes=picked[1], updates=picked[2]), info(clients=count)
        )
        assert abs(float(a.shares.sum()) - 1) < 1e-12 and (a.shares >= 0).all()
        assert a.shares[order].tolist() == pytest.approx(b.shares.tolist(), abs=1e-6)
        assert all(torch.allclose(state[name], other[name], atol=1e-6) for name in state)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: QFedAvg(q=-1), "QFedAvg: q must be at least 0, got -1"),
        (lambda: QFedAvg(form="paper2"), "QFedAvg: form must be one of paper, coefficients, got 'paper2'"),
        (lambda: PropFair(M=0), "PropFair: M must be above 0, got 0"),
        (lambda: PropFairLoss(M=-2.0), "PropFairLoss: M must be above 0, got -2.0"),
        (lambda: FedMgda(epsilon=2), "FedMgda: epsilon must be between 0 and 1, got 2"),
        (lambda: Afl(gamma=0), "Afl: gamma must be above 0, got 0"),
        (lambda: Term(tilt=math.nan), "Term: tilt must be a finite number, got nan"),
        (lambda: shares(QFedAvg(), [1.0, -1.0], [1, 1]), "QFedAvg: losses must be at least 0, got -1 from client 1"),
        (
            lambda: shares(Term(), [1.0, 1.0], [1, 1], ids=[0, 0]),
            "Term: a client may be in a cohort once, got client 0",
        ),
        (lambda: catalog.build("aaggff-d", {"cdf": "wiebull"}), "AAggFFDevice: unknown cdf 'wiebull'; did you mean"),
        (lambda: catalog.build("fedavg", mixing="aagff-s"), "unknown mixing rule 'aagff-s'; did you mean 'aaggff-s'?"),
    ],
)
def test_mistakes_are_told_in_one_line(call, line):
    with pytest.raises(FedchordError) as error:
        call()
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["afl", "q-fedavg", "term", "fedmgda", "propfair", "propfair-loss"])
def test_they_run_and_learn_a_little(name):
    task, training = Task(lambda: TwoNN(6, 8, 3)), Training(epochs=2, batch=4, lr=0.2)
    federation = make_federation([13, 20, 7, 31])
    settings = {"rounds": 6, "seed": 1, "training": training, "executor": "serial", "eval_every": 1}
    found = [result.evaluation.mean("loss") for result in run(catalog.build(name), task, federation, **settings)]
    assert found[-1] < found[0]
