"""SuPerFed against autograd of its objective

    J(f, l) = loss(theta(lam)) + (mu / 2) ||f - g||^2 + nu cos^2(f, l),   theta(lam) = (1 - lam) f + lam l,

with one torch.optim optimiser over both models. The lambdas are drawn as the library draws them; all else is plain
torch.
"""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from helpers import oracle
from helpers.federations import make_federation
from helpers.oracle import CLIENTS, COHORTS, DENSE, FEDERATION, NEVER, SEED, SETTINGS, TRAINING, close, vector
from helpers.superfed import blended, cos, lambdas, objective, train, warm
from torch import Tensor, nn

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.clients.superfed import SuPerFed
from fedchord.core.local import local_round
from fedchord.core.objective import Objective
from fedchord.core.rules import Algorithm, Phase, RoundInfo, Visit
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.simulate import simulate
from fedchord.engine.vectorised import traced
from fedchord.evaluation.fitted import Fitted
from fedchord.mixing.static import BySize
from fedchord.models import TwoNN
from fedchord.servers.step import Step
from fedchord.tensors import cosine

INFO = RoundInfo(round=0, rounds=4, num_clients=7, cohort=3, lr=0.1, epochs=2, key=0)
BATCH = FEDERATION.batch(FEDERATION.train[3][:8])


ADAM = Training(epochs=2, batch=4, lr=0.1, lr_decay=0.9, lr_step=2, optimiser="adam", weight_decay=0.01)
STRONG = {"mu": 0.3, "nu": 1.5}
CASES = {
    "mm": ("superfed-mm", {"warmup": 0.5} | STRONG, "dense", TRAINING),
    "mm by default": ("superfed-mm", {}, "dense", TRAINING),
    "mm, autograd": ("superfed-mm", {"start_round": 2, "blend": 0.2} | STRONG, "autograd", TRAINING),
    "mm, batchnorm": ("superfed-mm", {"warmup": 0.5} | STRONG, "batchnorm", TRAINING),
    "mm, no warm-up": ("superfed-mm", {"warmup": 0.0, "mu": 0.0, "nu": 4.0}, "dense", TRAINING),
    "mm, no cosine": ("superfed-mm", {"warmup": 0.25, "mu": 1.0, "nu": 0.0}, "dense", TRAINING),
    "mm, clipped": ("superfed-mm", {"warmup": 0.5} | STRONG, "dense", dataclasses.replace(TRAINING, clip=0.2)),
    "lm": ("superfed-lm", {"warmup": 0.5} | STRONG, "dense", TRAINING),
    "lm by default": ("superfed-lm", {}, "autograd", TRAINING),
    "lm, batchnorm": ("superfed-lm", {"start_round": 2} | STRONG, "batchnorm", TRAINING),
    "lm, no momentum": ("superfed-lm", {"warmup": 0.25} | STRONG, "dense", dataclasses.replace(TRAINING, momentum=0.0)),
    "lm, adam": ("superfed-lm", {"warmup": 0.5} | STRONG, "dense", ADAM),
}
DEFAULTS = {"superfed-mm": {"mu": 0.01, "nu": 1.0}, "superfed-lm": {"mu": 0.01, "nu": 2.0}}
BEGIN = {0.0: 0, 0.25: 1, 0.5: 2, None: 1}  # the default warm-up is 0.4 of 4 rounds


@pytest.mark.parametrize("case", CASES)
def test_against_plain_torch(case):
    name, parameters, kind, training = CASES[case]
    setting, layerwise = SETTINGS[kind], name == "superfed-lm"
    begin = parameters.get("start_round", BEGIN[parameters.get("warmup")])
    mu, nu = parameters.get("mu", DEFAULTS[name]["mu"]), parameters.get("nu", DEFAULTS[name]["nu"])
    # Adam divides by gradients that may be almost zero, where float32 is noise
    atol = 2e-4 if training.optimiser == "adam" else 1e-5
    algorithm = oracle.build(name, **parameters)
    g, own, counts, angles = setting.first(), {}, {}, {}
    for t, result in enumerate(oracle.running(algorithm, setting, training=training)):
        assert result.cohort == COHORTS[t]
        trained = []
        for i in result.cohort:
            own.setdefault(i, setting.private(i))
            counts.setdefault(i, 0)
            if t < begin:
                trained.append(warm(setting, g, i, t, mu, training))
            else:
                f, own[i] = train(setting, g, own[i], i, t, layerwise, mu, nu, training)
                trained.append(f)
                counts[i] += 1
                angles[i] = abs(float(F.cosine_similarity(vector(f), vector(own[i]), dim=0)))
        g = oracle.average(trained, oracle.by_size(result.cohort))
        assert oracle.same(result.state.broadcast, g, atol), t
        if t < begin:  # what a simulation writes down
            assert math.isnan(result.log["cosine"])
        else:
            seen = [angles[i] for i in result.cohort]
            assert result.log["cosine"] == pytest.approx(sum(seen) / len(seen), abs=1e-4)
        assert result.memory.clients() == sorted(own)
        for i, l in own.items():  # noqa: E741
            kept = result.memory.get(i)
            assert kept.keys() == {"own", "trained"}
            assert close(kept["own"], vector(l), atol), (t, i)
            assert float(kept["trained"]) == counts[i]
    blend = parameters.get("blend", 0.5)
    models = {i: blended(g, own[i], blend, i) if counts.get(i) else g for i in CLIENTS}
    if begin == 2:
        assert counts == {0: 1, 2: 1, 3: 2, 5: 2, 6: 0}
    if training.optimiser == "sgd":
        oracle.check_deployed(result, models, 2e-5)


# -- the warm-up -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("warmup", "rounds", "begin"),
    [(0.0, 10, 0), (0.4, 10, 4), (0.4, 500, 200), (0.29, 100, 29), (0.58, 50, 29), (0.7, 10, 7), (0.4, 4, 1),
     (0.99, 10, 9), (1.0, 10, 10), (0.3, 1, 0), (1, 7, 7), (1 / 3, 3, 1)],
)  # fmt: skip
def test_the_first_round_of_mixing_is_the_floor_of_warmup_times_rounds(warmup, rounds, begin):
    """0.29 * 100 is 28.999... in floating point; 29 is meant."""
    rule = SuPerFed(warmup=warmup)
    seen = [rule.mixes_in(dataclasses.replace(INFO, round=t, rounds=rounds)) for t in range(rounds)]
    assert seen == [t >= begin for t in range(rounds)]


def test_a_start_round_counts_from_0_and_goes_before_the_fraction():
    for begin in (0, 1, 3, 99):
        rule = SuPerFed(warmup=0.4, start_round=begin)
        assert [rule.mixes_in(dataclasses.replace(INFO, round=t)) for t in range(4)] == [t >= begin for t in range(4)]
    same = [oracle.theta(oracle.build("superfed-mm", **p)) for p in ({"warmup": 0.5}, {"start_round": 2})]
    assert torch.equal(*same)
    assert not torch.equal(same[0], oracle.theta(oracle.build("superfed-mm", start_round=1)))


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_private_model_is_frozen_during_the_warm_up(kind):
    """Bit for bit, with momentum, weight decay and a cosine term that would move it."""
    setting = SETTINGS[kind]
    for t, result in enumerate(oracle.running(oracle.build("superfed-mm", start_round=2, nu=5.0), setting)):
        for i in result.memory.clients():
            rounds = [s for s in range(2, t + 1) if i in COHORTS[s]]
            assert torch.equal(result.memory.get(i)["own"], vector(setting.private(i))) == (not rounds)
            assert float(result.memory.get(i)["trained"]) == len(rounds)


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("name", ["superfed-mm", "superfed-lm"])
@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_a_warm_up_to_the_end_is_fedavg_or_fedprox_bit_for_bit(kind, name, mu):
    """P1 and P2."""
    setting = SETTINGS[kind]
    rival = oracle.build("fedprox", mu=mu) if mu else oracle.build("fedavg")
    plain = list(oracle.running(rival, setting))
    nu = 0.0 if name == "superfed-mm" else 2.0  # the cosine is off in the warm-up
    for t, result in enumerate(oracle.running(oracle.build(name, warmup=1.0, mu=mu, nu=nu), setting)):
        for entry in ("theta", "buffers"):
            assert torch.equal(result.state.broadcast[entry], plain[t].state.broadcast[entry]), t
    for metric, values in plain[-1].evaluation.per_client.items():
        assert torch.equal(result.evaluation.per_client[metric], values)


# -- the slopes --------------------------------------------------------------------------------------------------


def pair_of(task: Task, angle: float = 0.6) -> Tensor:
    """Two random models with a cosine well away from 0 and 1."""
    f, noise = task.fresh(1)["theta"], task.fresh(2)["theta"]
    return torch.stack([f, 1.7 * (angle * f + (1 - angle) * noise)])


def visit_of(task: Task) -> Visit:
    shared = task.fresh(3)
    return Visit(task, shared, {}, dataclasses.replace(INFO, round=3), 0, 8, phase=Phase(("pair",), 1))


def slopes(rule: SuPerFed, task: Task, pair: Tensor, key: int) -> Tensor:
    trained = {"pair": pair.clone(), "buffers": task.fresh(1)["buffers"].clone()}
    return rule.direction(trained, visit_of(task), BATCH, key)["pair"].clone()


def by_autograd(setting, task: Task, pair: Tensor, key: int, rule: SuPerFed) -> Tensor:
    f, l, g = (setting.make() for _ in range(3))  # noqa: E741
    for module, values in zip((f, l, g), (pair[0], pair[1], visit_of(task).shared["theta"]), strict=True):
        nn.utils.vector_to_parameters(values.clone(), module.parameters())
    lam = lambdas(dict(f.named_parameters()), key, rule.layerwise)
    objective(f, l, g, BATCH, lam, rule.mu, rule.nu).backward()
    return torch.stack([torch.cat([p.grad.reshape(-1) for p in m.parameters()]) for m in (f, l)])


@pytest.mark.parametrize("layerwise", [False, True])
@pytest.mark.parametrize("kind", [*SETTINGS, "traced"])
def test_the_written_slopes_are_those_of_autograd(kind, layerwise):
    """P3, in all three ways a gradient is computed."""
    setting = SETTINGS.get(kind, DENSE)
    task = traced(setting.task()) if kind == "traced" else setting.task()
    pair = pair_of(task)
    assert 0.3 < float(cosine(*pair)) < 0.95
    for mu, nu in [(0.0, 0.0), (0.5, 0.0), (0.0, 3.0), (0.5, 3.0)]:
        rule = SuPerFed(layerwise=layerwise, mu=mu, nu=nu)
        for key in (11, 12):
            expected = by_autograd(setting, task, pair, key, rule)
            assert close(slopes(rule, task, pair, key), expected, 2e-6), (mu, nu)
            assert expected.norm(dim=1).min() > 0.01


def test_the_data_parts_stand_in_the_ratio_of_the_lambdas():
    """P3: (1 - lam) dJ/dl = lam dJ/df layer by layer; all tensors of a module share one lambda, modules differ."""
    task = DENSE.task()
    for layerwise in (False, True):
        rule, found = SuPerFed(layerwise=layerwise, mu=0.0, nu=0.0), []
        for key in range(20):
            near, far = slopes(rule, task, pair_of(task), key)
            lam = {}
            for entry in task.layout.entries:
                a, b = near[entry.slice].double(), far[entry.slice].double()
                assert a.norm() > 0
                lam[entry.name] = float(b @ (a + b) / ((a + b) @ (a + b)))
                assert torch.allclose((1 - lam[entry.name]) * b, lam[entry.name] * a, atol=1e-6)
            for module in ("hidden1", "hidden2", "head"):
                assert lam[f"{module}.weight"] == pytest.approx(lam[f"{module}.bias"], abs=1e-5)
            values = [lam["hidden1.weight"], lam["hidden2.weight"], lam["head.weight"]]
            assert (max(values) - min(values) > 1e-3) == layerwise
            assert all(-1e-6 <= value < 1 + 1e-6 for value in values)
            found += values[: 3 if layerwise else 1]
        assert min(found) < 0.2 and max(found) > 0.8  # over [0, 1), anew for every batch
        assert len({round(value, 4) for value in found}) > len(found) - 2


def test_the_lambda_of_a_layer_is_shared_by_its_norms_weight_and_bias():
    """BatchNorm is a layer of its own; weight and bias share its lambda."""
    setting = SETTINGS["batchnorm"]
    task = setting.task()
    near, far = slopes(SuPerFed(layerwise=True, mu=0.0, nu=0.0), task, pair_of(task), 5)
    views = task.layout.views(far / (near + far)), task.layout.views(near.abs() > 1e-4)
    by_module = {}
    for name, values in views[0].items():
        by_module.setdefault(name.rpartition(".")[0], []).append(values[views[1][name]])
    lams = {module: torch.cat([v.reshape(-1) for v in values]) for module, values in by_module.items()}
    assert list(lams) == ["hidden", "norm", "head"]
    assert all(values.max() - values.min() < 1e-3 for values in lams.values())
    means = [float(values.mean()) for values in lams.values()]
    assert all(abs(a - b) > 1e-2 for i, a in enumerate(means) for b in means[:i])


# -- the cosine --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [0.0, 0.3, 0.9])
def test_the_cosine_turns_and_does_not_stretch(angle):
    """P4: the slope of cos^2 is orthogonal to the model it belongs to; it is the slope autograd finds."""
    task = DENSE.task()
    pair = pair_of(task, angle)
    turn = slopes(SuPerFed(mu=0.2, nu=3.0), task, pair, 4) - slopes(SuPerFed(mu=0.2, nu=0.0), task, pair, 4)
    f, l = (part.double().requires_grad_() for part in pair)  # noqa: E741
    (3.0 * cos([f], [l]) ** 2).backward()
    assert close(turn, torch.stack([f.grad, l.grad]).float(), 2e-6)
    for part, slope in zip(pair, turn, strict=True):
        assert slope.norm() > 1e-3
        assert abs(float(part @ slope)) < 1e-5 * float(part.norm() * slope.norm()) + 1e-6


def test_the_squared_cosine_lies_in_the_unit_interval():
    """P4: 1 where the models are parallel, 0 where they are orthogonal or one is zero."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        a, b = torch.randn(2, 40, generator=generator)
        assert 0 <= float(cosine(a, b)) ** 2 <= 1
        assert float(cosine(a, -3 * a)) == pytest.approx(-1, abs=1e-6)
        assert abs(float(cosine(a, b - (a @ b) / (a @ a) * a))) < 1e-6
    assert float(cosine(a, torch.zeros(40))) == 0


FLAT = Objective("flat", lambda outputs, batch: (0.0 * outputs.sum(1), None), lambda o, b: (o, b["y"]), ("loss",))


@pytest.mark.parametrize("layerwise", [False, True])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_pure_orthogonality_descent_makes_the_models_orthogonal(layerwise, optimiser):
    """P4: with a loss that is zero everywhere, |cos| goes to 0 from both sides."""
    task = Task(oracle.two, objective=FLAT)
    rule = SuPerFed(layerwise=layerwise, mu=0.0, nu=1.0, warmup=0.0)
    training = Training(epochs=40, batch=0, lr=0.5 if optimiser == "sgd" else 0.005, optimiser=optimiser)
    info = dataclasses.replace(INFO, epochs=40, lr=training.lr)
    for sign in (1, -1):
        f, l = pair_of(task, 0.7)  # noqa: E741
        shared, own = task.init(0) | {"theta": f}, {"own": sign * l, "trained": torch.zeros(1)}
        before = float(cosine(f, sign * l))
        stream = ClientStream(FEDERATION, 3, 4, 7)
        upload, kept, _ = local_round(rule, task, training, shared, own, stream, info, 3, 5)
        after = float(cosine(f + upload.mix["theta"], kept["own"]))
        assert sign * before > 0.5 and abs(after) < 0.02, (before, after)
        assert (f + upload.mix["theta"]).norm() > 0.9 * f.norm() and kept["own"].norm() > 0.9 * l.norm()


def test_a_model_of_zeros_has_no_cosine():
    """Zero models (a common first model of logistic regression) give no NaN, on either path."""
    task = DENSE.task()
    visit = visit_of(task)
    for pair in (torch.zeros(2, 83), torch.stack([torch.zeros(83), task.fresh(1)["theta"]])):
        assert torch.isfinite(slopes(SuPerFed(nu=2.0), task, pair, 4)).all()
        own = {"own": pair[1], "trained": torch.zeros(1)}
        shared = {"theta": pair[0], "buffers": visit.shared["buffers"]}
        stream = ClientStream(FEDERATION, 3, 4, 7)
        rule = SuPerFed(nu=2.0, warmup=0.0)
        upload, kept, _ = local_round(rule, task, TRAINING, shared, own, stream, INFO, 3, 5)
        assert torch.isfinite(upload.mix["theta"]).all() and torch.isfinite(kept["own"]).all()


def test_the_cosine_term_brings_the_models_towards_a_right_angle():
    """A toy run: cos^2 of the last global model and the private ones is smaller with nu than without."""
    found = {}
    for nu in (0.0, 2.0):
        result = oracle.last(oracle.build("superfed-mm", warmup=0.0, nu=nu), rounds=8, cohort=7)
        w = result.state.broadcast["theta"]
        found[nu] = sum(float(cosine(w, result.memory.get(i)["own"])) ** 2 for i in CLIENTS) / len(CLIENTS)
    assert found[2.0] < 0.1 * found[0.0], found


# -- what travels, what stays, what is used ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("begin", [0, 99])
def test_only_f_travels(kind, begin):
    setting = SETTINGS[kind]
    task, rule = setting.task(), SuPerFed(start_round=begin)
    shared = task.init(1)
    own = rule.init(task, shared, 2)
    stream = ClientStream(FEDERATION, 3, 4, 7, least=task.least_batch)
    upload, kept, _ = local_round(rule, task, TRAINING, shared, own, stream, INFO, 3, 5)
    assert upload.mix.keys() == {"theta"} and upload.carry.keys() == {"buffers"}
    assert upload.mean == {} and upload.log.means.keys() == {"cosine"} and upload.log.sums == {}
    assert upload.mix["theta"].shape == shared["theta"].shape
    assert kept.keys() == own.keys() == {"own", "trained"}
    result = oracle.last(oracle.build("superfed-mm", start_round=begin), setting, rounds=2)
    plain = oracle.last("fedavg", setting, rounds=2)
    assert (result.bytes_up, result.bytes_down) == (plain.bytes_up, plain.bytes_down)
    assert result.state.broadcast.keys() == {"theta", "buffers"}


@pytest.mark.parametrize("name", ["superfed-mm", "superfed-lm"])
def test_the_server_takes_the_weighted_mean_of_the_f(name):
    """P5: with the rule's own local rounds."""
    algorithm = oracle.build(name, warmup=0.0)
    results = list(oracle.running(algorithm, rounds=2))
    task = DENSE.task()
    shared = {"theta": vector(DENSE.first()), "buffers": torch.zeros(0)}
    ends = []
    for i in COHORTS[0]:
        stream = ClientStream(FEDERATION, i, 4, rng.key(SEED, "batches", i, 0))
        own = {"own": vector(DENSE.private(i)), "trained": torch.zeros(1)}
        info = dataclasses.replace(INFO, rounds=2)
        key = rng.key(SEED, "local", i, 0)
        upload, _, _ = local_round(algorithm.client, task, TRAINING, shared, own, stream, info, i, key)
        ends.append(shared["theta"] + upload.mix["theta"])
    weights = oracle.by_size(COHORTS[0])
    assert sum(weights) == pytest.approx(1) and float(results[0].shares.sum()) == pytest.approx(1)
    mean = sum(w * end for w, end in zip(weights, ends, strict=True))
    assert close(results[0].state.broadcast["theta"], mean, 1e-6)


def test_the_ends_of_the_line():
    """P5: lam = 0 is the global model, lam = 1 the private one, exactly; between them the straight line."""
    task, result = DENSE.task(), oracle.last(oracle.build("superfed-mm", start_round=2))
    shared = result.state.broadcast
    for i in (0, 2, 3, 5):
        own = result.memory.get(i)
        line = Fitted.of(result).line(i)
        assert torch.equal(line.near, shared["theta"]) and torch.equal(line.far, own["own"]) and line.at == 0.5
        ends = {blend: SuPerFed(blend=blend).deploy(task, shared, own).theta for blend in (0.0, 0.25, 1.0)}
        assert torch.equal(ends[0.0], shared["theta"]) and torch.equal(ends[1.0], own["own"])
        assert close(ends[0.25], 0.75 * shared["theta"] + 0.25 * own["own"], 1e-6)


@pytest.mark.parametrize("kind", ["dense", "batchnorm"])
def test_a_client_never_trained_after_the_warm_up_uses_the_global_model(kind):
    setting, algorithm = SETTINGS[kind], oracle.build("superfed-mm", start_round=2)
    result = oracle.last(algorithm, setting)
    assert 6 in result.memory.clients()  # trained in the warm-up only
    for i in (*NEVER, 6):
        model = oracle.model_of(result, i)
        for entry in ("theta", "buffers"):
            assert torch.equal(model[entry], result.state.broadcast[entry])
        assert Fitted.of(result).line(i) is None
    for i in (0, 2, 3, 5):
        assert not torch.equal(oracle.model_of(result, i)["theta"], result.state.broadcast["theta"])


def test_private_models_differ_from_each_other_and_from_the_global_one():
    task, rule = DENSE.task(), SuPerFed()
    first = task.init(rng.key(SEED, "model"))
    starts = [rule.init(task, first, rng.key(SEED, "own", i))["own"] for i in CLIENTS] + [first["theta"]]
    result = oracle.last(oracle.build("superfed-mm", warmup=0.0), cohort=7, rounds=2)
    ends = [result.memory.get(i)["own"] for i in CLIENTS] + [result.state.broadcast["theta"]]
    for models in (starts, ends):
        assert all((a - b).norm() > 0.5 for i, a in enumerate(models) for b in models[:i])


def test_a_module_given_as_it_is_still_gets_random_private_models():
    """The global model starts from the given weights, the private ones do not."""
    torch.manual_seed(3)
    module = oracle.two()
    task, rule = Task(module), SuPerFed()
    assert torch.equal(task.init(1)["theta"], vector(module))
    owns = [rule.init(task, task.init(1), key)["own"] for key in (1, 2)]
    assert all((own - vector(module)).norm() > 0.5 for own in owns) and (owns[0] - owns[1]).norm() > 0.5


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        (
            {"warmup": 40},
            "SuPerFed: warmup (a share of the rounds; start_round is a round) must be between 0 and 1, got 40",
        ),
        (
            {"warmup": -0.1},
            "SuPerFed: warmup (a share of the rounds; start_round is a round) must be between 0 and 1, got -0.1",
        ),
        (
            {"warmup": None},
            "SuPerFed: warmup (a share of the rounds; start_round is a round) must be a finite number, got None",
        ),
        ({"nu": -1.0}, "SuPerFed: nu must be at least 0, got -1.0"),
        ({"mu": -0.01}, "SuPerFed: mu must be at least 0, got -0.01"),
        ({"mu": float("inf")}, "SuPerFed: mu must be a finite number, got inf"),
        ({"blend": 1.1}, "SuPerFed: blend must be between 0 and 1, got 1.1"),
        ({"start_round": -1}, "SuPerFed: start_round must be a whole number of at least 0, got -1"),
        ({"start_round": 0.5}, "SuPerFed: start_round must be a whole number of at least 0, got 0.5"),
        ({"eta": 1.0}, "unknown parameter of superfed-mm 'method.eta'"),
    ],
)
def test_mistakes_are_told_in_one_line(parameters, line):
    with pytest.raises(FedchordError) as error:
        oracle.build("superfed-mm", **parameters)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_a_private_model_may_begin_as_the_global_one():
    """In the first round that mixes both ends are the received model; from then on l is the client's own."""
    federation = make_federation([12, 9, 14])
    task = Task(lambda: TwoNN(6, 5, 3))
    rule = SuPerFed(mu=0.0, nu=0.0, start_round=1, begin="global")
    algorithm = Algorithm(rule, BySize(), Step())
    settings = {"rounds": 3, "cohort": 3, "seed": 1, "executor": "serial", "training": Training(lr=0.1, batch=4)}
    states, kept = [], []
    for result in simulate(algorithm, task, federation, **settings):
        states.append(result.state.broadcast["theta"].clone())
        kept.append({name: tensor.clone() for name, tensor in result.memory.get(0).items()})
    info = RoundInfo(1, 3, 3, 3, 0.1, 1, key=0)
    first = rule.start(Visit(task, {"theta": states[0], "buffers": torch.zeros(0)}, kept[0], info, 0, 12))["pair"]
    assert torch.equal(first[0], states[0]) and torch.equal(first[1], states[0])
    later = rule.start(Visit(task, {"theta": states[1], "buffers": torch.zeros(0)}, kept[1], info, 0, 12))["pair"]
    assert torch.equal(later[1], kept[1]["own"]) and not torch.equal(later[1], states[1])
    with pytest.raises(FedchordError, match="begin"):
        SuPerFed(begin="zero")
