"""What fits what in the settings of a run: every mistake is told here, in one line, before any work is done."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

import torch

from fedchord import check, models
from fedchord.check import fail, require, unknown
from fedchord.clients.finetune import FineTune
from fedchord.core.rules import GLOBAL, Algorithm
from fedchord.data import PARTITIONS, SOURCES
from fedchord.data.noise import KINDS
from fedchord.data.split import split_sizes
from fedchord.engine.executors import EXECUTORS, MOST_WORKERS
from fedchord.engine.guards import MEDIAN
from fedchord.evaluation.newcomers import count
from fedchord.evaluation.sweep import check_lambdas
from fedchord.experiments import own_data
from fedchord.experiments.build import LOSSES, method_model
from fedchord.privacy.allowed import refused
from fedchord.privacy.terms import CLIENTS, ROWS
from fedchord.synthetic.share import ADDS

if TYPE_CHECKING:
    from fedchord.experiments.config import RunConfig


def check_run(config: RunConfig) -> None:
    """Every check of a run's settings, the types of which are known to be right."""
    for step in (
        _names,
        _numbers,
        _noise,
        _newcomers,
        _synthetic,
        _clients,
        _central,
        _choice,
        _line,
        _hostile,
        _privacy,
        _compress,
    ):
        step(config)


def _names(config: RunConfig) -> None:
    _flags(config.algorithm())
    if not own_data.is_own(config.data) and config.data not in SOURCES:
        raise unknown("data set", config.data, SOURCES)
    own_data.check(config)
    if config.loss is not None:
        check.one_of("run", "loss", config.loss, LOSSES)
        numbers = own_data.is_own(config.data)
        require(numbers, "run", f"loss={config.loss} is for numbers to predict (data.target), got data={config.data}")
    if config.skip_damaged and not (config.data in SOURCES and SOURCES[config.data].skips):
        able = ", ".join(name for name, source in SOURCES.items() if source.skips)
        raise fail("run", f"data.skip_damaged is for data of many files ({able}), got data={config.data}")
    if config.augment and not (config.data in SOURCES and SOURCES[config.data].augments):
        able = ", ".join(name for name, source in SOURCES.items() if source.augments)
        raise fail("run", f"augment is for {able}, got data={config.data}")
    _model(config)
    if config.split is not None and config.split not in PARTITIONS:
        raise unknown("split", config.split, PARTITIONS)
    if config.noise is not None and config.noise not in ("none", *KINDS):
        raise unknown("noise", config.noise, ("none", *KINDS))
    check.one_of("run", "executor", config.executor, EXECUTORS)
    device = re.fullmatch(r"auto|cpu|cuda(:\d+)?", config.device)
    require(device is not None, "run", f"device must be auto, cpu or cuda, got {config.device!r}")


def _model(config: RunConfig) -> None:
    """A model has a name that is known, and only code of your own has arguments."""
    name, arguments = config.model, config.free("model")
    if arguments and not config.is_foreign("model"):
        key = f"model.{next(iter(arguments))}"
        raise fail(
            "run",
            f"{key} is for a model of your own (model=FILE.py:NAME), got {f'model={name}' if name else 'no model'}",
        )
    if name is None:
        return
    if config.is_foreign("model"):
        models.check_own(name, arguments)
    else:
        models.check_name(name)
    _network(config, name.partition(":")[0])


def _network(config: RunConfig, model: str) -> None:
    """A method that draws from a network trains that kind of network, and no other method does."""
    usual = method_model(config)
    if usual in models.GENERATIVE:
        require(model == usual, "run", f"{config.method} trains the network {usual}, got model={config.model}")
    elif model in models.GENERATIVE:
        raise fail("run", f"model={config.model} is for fed{model}, got method={config.method}")


def _numbers(config: RunConfig) -> None:
    config.training()
    config.weather()
    config.partition()
    split_sizes(torch.ones(1, dtype=torch.int64), config.test, config.validation)
    check.positive("run", "test", config.test)
    check.whole("run", "epochs", config.epochs, 1)
    if config.workers is not None:
        check.whole("run", "workers", config.workers, 1, MOST_WORKERS)
    if config.eval_clients is not None:
        check.whole("run", "eval_clients", config.eval_clients, 1)
        model = config.algorithm().outcome == "model"
        require(model, "run", f"eval_clients needs a method that ends with a model, got {config.method}")
    require(not config.eval_all or config.eval_clients is not None, "run", "eval_all is given, but not eval_clients")
    for name in ("eval_every", "checkpoint_every"):
        if getattr(config, name) is not None:
            check.whole("run", name, getattr(config, name))


def _noise(config: RunConfig) -> None:
    noisy = config.noise not in (None, "none")
    if config.noise_rate is None:
        require(not noisy, "run", f"noise.rate is needed with noise={config.noise}")
        return
    rate = check.between("run", "noise.rate", config.noise_rate, 0, 1)
    require(noisy or rate == 0, "run", f"noise.rate is {rate:g}, but noise is not chosen (pair or symmetric)")


def _newcomers(config: RunConfig) -> None:
    if config.newcomer_epochs is not None:
        check.whole("run", "newcomer_epochs", config.newcomer_epochs)
        require(bool(config.newcomers), "run", "newcomer_epochs is given, but there are no newcomers")
    if not config.newcomers:
        return
    model = config.algorithm().outcome == "model"
    require(model, "run", f"newcomers need a method that ends with a model, got {config.method}")
    count(config.newcomers, sys.maxsize)  # the range; how many there are of is known later


def _synthetic(config: RunConfig) -> None:
    """Keys about a synthetic set that is used, and about one that is made."""
    if config.synthetic is None:
        for key in ("add", "least"):
            given = getattr(config, f"synthetic_{key}") is not None
            require(not given, "run", f"synthetic.{key} is given, but no synthetic set is")
    check.one_of("run", "synthetic.add", config.synthetic_add or "all", ADDS)
    if config.synthetic_least is not None:
        check.whole("run", "synthetic.least", config.synthetic_least, 1)
        few = config.synthetic_add in ("poor", "missing")
        require(few, "run", "synthetic.least needs synthetic.add=poor or missing")
    for name in ("judge", "judge_steps", "judge_features", "judge_privacy"):
        if getattr(config, name) is not None and config.algorithm().outcome == "model":
            raise fail("run", f"{name.replace('_', '.')} needs a method that ends with samples, got {config.method}")
    config.judged_by()
    if config.judge_features is not None:
        from fedchord.synthetic.features import check_features  # here, since few runs measure it

        check_features(config.judge_features)


def _clients(config: RunConfig) -> None:
    plan, made = config.plan(), config.choices()
    if made["clients"] == "all":
        require(made["split"] == "natural", "run", f"clients=all needs split=natural, got split={made['split']}")
        return
    clients = check.whole("run", "clients", made["clients"], 1)
    if made["split"] != "natural":
        plan.size(clients - count(config.newcomers or 0, clients))


def _central(config: RunConfig) -> None:
    """One model of all rows can be deployed as it is, or tuned."""
    rule = config.algorithm().client
    able = rule.deploys.kind == GLOBAL or (isinstance(rule, FineTune) and rule.form == "global")
    told = "central trains one model for all: use fedavg or another method that deploys it, or fedavg-ft"
    require(able or not config.central, "run", f"{told}, got {config.method}")


def _choice(config: RunConfig) -> None:
    """What can be chosen for all clients, and on how many rows."""
    for key in ("held", "epochs", "lambdas", "within"):
        given = getattr(config, f"choose_{key}") is not None
        require(config.choose is not None or not given, "run", f"choose.{key} is given, but choose is not")
    chooser = config.chooser()
    if chooser is not None:
        chooser.check(config.algorithm())
        held = config.held()
        require(0 < held < 1, "run", f"choose.held must lie between 0 and 1, got {held}")


def _hostile(config: RunConfig) -> None:
    """Who is hostile, and how the server takes uploads."""
    for name in ("share", "scale"):
        given = getattr(config, f"attack_{name}") is not None
        require(config.attack is not None or not given, "run", f"attack.{name} is given, but attack is not")
    trims = config.combine == "trimmed"
    require(trims or config.combine_trim is None, "run", "combine.trim needs combine=trimmed")
    config.defence().check(config.algorithm(), config.privacy == CLIENTS)
    attack = config.hostile()
    if attack is None:
        return
    attack.check(config.algorithm())
    require(not config.central, "run", "attack is about clients, and central trains on the rows of all")
    clients = config.choices()["clients"]
    if isinstance(clients, int) and not config.newcomers:
        attack.hostile(config.seed, clients)


def _privacy(config: RunConfig) -> None:
    """Keys of privacy, and what would tell more than it allows."""
    if config.privacy is None:
        for name in ("epsilon", "delta", "clip", "noise", "sampling"):
            given = getattr(config, f"privacy_{name}") is not None
            require(not given, "run", f"privacy.{name} is given, but privacy is not (clients or rows)")
        return
    config.private()
    reason = refused(config.algorithm(), config.privacy)
    require(not reason, "privacy", f"{config.algorithm().title} cannot be private: {reason}")
    weighed = config.privacy == ROWS and config.class_weights
    require(not weighed, "privacy", "class_weights follow how many rows of a class there are, which is not hidden")
    require(not config.central, "privacy", "central has all rows in one place: there is nobody to hide from")
    summed = config.combine in (None, "mean")
    require(summed, "privacy", f"noise hides a client in a sum, and combine={config.combine} is none")
    fixed = config.bound != MEDIAN
    require(fixed, "privacy", "bound=median follows the lengths of all updates, which are not hidden; give a length")
    told = "choose adds up losses on rows of clients, which are not hidden"
    require(config.choose is None, "privacy", told)


def _compress(config: RunConfig) -> None:
    """In how many bytes updates leave clients."""
    packing = config.packing()
    if packing is None:
        given = config.compress_feedback is not None
        require(not given, "run", "compress.feedback is given, but compress is not (half or bytes)")
        return
    require(not config.central, "run", "compress is about what clients send, and central has the rows of all")
    packing.check(config.algorithm(), config.privacy == CLIENTS, config.combine or "mean")


def _line(config: RunConfig) -> None:
    """Keys about the line between two models: where it is measured, and from which round on it is trained."""
    if config.sweep_lambdas is not None:
        check_lambdas(config.sweep_lambdas, "sweep.lambdas")
        rising = all(a < b for a, b in zip(config.sweep_lambdas, config.sweep_lambdas[1:], strict=False))
        require(rising, "sweep.lambdas", f"every lambda must be above the one before, got {config.sweep_lambdas}")
    begin = getattr(config.algorithm().client, "start_round", None)
    require(
        begin is None or begin < config.rounds,
        "run",
        f"method.start_round must be below the number of rounds, {config.rounds} (they count from 0), got {begin}",
    )


def _flags(algorithm: Algorithm) -> None:
    """Yes-or-no parameters must be true or false; rules check their numbers themselves."""
    for rule in (algorithm.client, algorithm.mixing, algorithm.server):
        for part in fields(rule):  # type: ignore[arg-type]
            value = getattr(rule, part.name)
            if isinstance(part.default, bool) and not isinstance(value, bool):
                raise fail(type(rule).__name__, f"{part.name} must be true or false, got {value!r}")
