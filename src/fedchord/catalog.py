"""Every method by name, on one page.

A method is a record of three rules; each can be exchanged by name (`mixing=`, `server=`), and each rule's fields are
its hyperparameters.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedchord import plugins
from fedchord.check import FedchordError, fail, require, unknown
from fedchord.clients.apfl import Apfl
from fedchord.clients.ditto import Ditto
from fedchord.clients.energy import TABLES, THESIS, Energy
from fedchord.clients.finetune import FineTune
from fedchord.clients.generative import FedCgan, FedCvae
from fedchord.clients.pfedme import PFedMe
from fedchord.clients.plain import Local, Plain
from fedchord.clients.propfair import PropFairLoss
from fedchord.clients.prox import Prox
from fedchord.clients.scaffold import Scaffold
from fedchord.clients.split import Split
from fedchord.clients.stateless import StatelessSuPerFed
from fedchord.clients.superfed import SuPerFed
from fedchord.clients.witness import Witness
from fedchord.core.rules import Algorithm, ClientRule, MixingRule, ServerRule
from fedchord.mixing.aaggff import AAggFFDevice, AAggFFSilo
from fedchord.mixing.adaptive import AAggFFAdaptive
from fedchord.mixing.afl import Afl
from fedchord.mixing.fedmgda import FedMgda
from fedchord.mixing.perturbed import AAggFFPrivate
from fedchord.mixing.propfair import PropFair
from fedchord.mixing.qfedavg import QFedAvg
from fedchord.mixing.robust import GeometricMedian, Krum
from fedchord.mixing.static import BySize, Uniform
from fedchord.mixing.term import Term
from fedchord.servers.adaptive import Adagrad, Adam, Momentum, Yogi
from fedchord.servers.langevin import SCHEDULE, SHORT, STILL, Langevin
from fedchord.servers.step import Blend, ScaffoldStep, Step


@dataclass(frozen=True)
class Method:
    """A named combination of three rules, and one line that says what it is."""

    client: Callable[..., ClientRule]
    mixing: Callable[..., MixingRule] = BySize
    server: Callable[..., ServerRule] = Step
    about: str = ""
    model: str = ""
    """The model that a run takes for this method unless it names one; empty: by the data."""


METHODS: dict[str, Method] = {
    "local": Method(Local, about="every client learns alone (control)"),
    "fedavg": Method(Plain, about="weighted mean of the clients' models (McMahan et al., 2017)"),
    "uniform": Method(Plain, Uniform, about="FedAvg with equal weights (control)"),
    "fedprox": Method(Prox, about="local training held near the received model (Li et al., 2020)"),
    "scaffold": Method(Scaffold, Uniform, ScaffoldStep, about="control variates (Karimireddy et al., 2020)"),
    "fedavgm": Method(Plain, server=Momentum, about="server momentum (Hsu et al., 2019)"),
    "fedadam": Method(Plain, server=Adam, about="server Adam (Reddi et al., 2021)"),
    "fedyogi": Method(Plain, server=Yogi, about="server Yogi (Reddi et al., 2021)"),
    "fedadagrad": Method(Plain, server=Adagrad, about="server Adagrad (Reddi et al., 2021)"),
    "fedavg-ft": Method(FineTune, about="FedAvg, then a few local epochs before use (control)"),
    "lg-fedavg": Method(partial(Split, keeps="body"), about="private body, shared head (Liang et al., 2020)"),
    "fedper": Method(Split, about="shared body, private head (Arivazhagan et al., 2019)"),
    "fedrep": Method(partial(Split, alternate=True), about="private head first, then the body (Collins et al., 2021)"),
    "apfl": Method(Apfl, about="mixture of the global and a private model (Deng et al., 2020)"),
    "pfedme": Method(PFedMe, server=Blend, about="personal models by Moreau envelopes (Dinh et al., 2020)"),
    "ditto": Method(Ditto, about="private model held near the global one (Li et al., 2021)"),
    "superfed-mm": Method(SuPerFed, about="mode connectivity, one lambda per batch (thesis, chapter 2)"),
    "superfed-lm": Method(partial(SuPerFed, layerwise=True, nu=2.0), about="the same, one lambda per layer and batch"),
    "superfed-stateless": Method(StatelessSuPerFed, about="SuPerFed whose clients keep nothing between rounds"),
    "afl": Method(Plain, Afl, about="weights that climb the losses, min-max fairness (Mohri et al., 2019)"),
    "q-fedavg": Method(Plain, QFedAvg, about="weights by powers of the losses (Li et al., 2020)"),
    "term": Method(Plain, Term, about="weights by exponentials of the losses (Li et al., 2021)"),
    "fedmgda": Method(Plain, FedMgda, about="the shortest mix of normalised updates (Hu et al., 2022)"),
    "propfair": Method(Plain, PropFair, about="proportional fairness as weights (Zhang et al., 2022)"),
    "propfair-loss": Method(PropFairLoss, about="proportional fairness as the clients' loss (Zhang et al., 2022)"),
    "aaggff-s": Method(Plain, AAggFFSilo, about="fair weights by online Newton steps, all clients (thesis, chapter 3)"),
    "aaggff-d": Method(Plain, AAggFFDevice, about="fair weights by entropic FTRL, sampled clients (thesis, chapter 3)"),
    "aaggff-a": Method(Plain, AAggFFAdaptive, about="the same with a larger step and fading responses"),
    "aaggff-p": Method(Plain, AAggFFPrivate, about="the same on noisy reports: differentially private losses"),
    "fedevg": Method(
        Energy,
        server=Langevin,
        about="a synthetic set by energy models, our recipe (thesis, chapter 4)",
        model="smallconv",
    ),
    "fedevg-tables": Method(
        partial(Energy, **TABLES),
        server=partial(Langevin, **SHORT),
        about="FedEvg for tables: numbers within their ranges, categories settled at the end",
        model="twonn",
    ),
    "fedevg-thesis": Method(
        partial(Energy, **THESIS),
        server=partial(Langevin, **SCHEDULE),
        about="the same with the settings of the thesis: local models drawn anew in every round",
        model="smallconv",
    ),
    "fedevg-witness": Method(
        Witness,
        server=partial(Langevin, **STILL),
        about="a synthetic set by matching mean features of random networks; clients train nothing",
        model="smallconv",
    ),
    "fedcvae": Method(
        FedCvae, about="samples from a mean conditional auto-encoder (thesis, chapter 4, baseline)", model="cvae"
    ),
    "fedcgan": Method(
        FedCgan, about="samples from a mean conditional generator (thesis, chapter 4, baseline)", model="cgan"
    ),
}

MIXINGS: dict[str, Callable[..., MixingRule]] = {
    "by-size": BySize,
    "uniform": Uniform,
    "afl": Afl,
    "q-fedavg": QFedAvg,
    "term": Term,
    "fedmgda": FedMgda,
    "propfair": PropFair,
    "aaggff-s": AAggFFSilo,
    "aaggff-d": AAggFFDevice,
    "aaggff-a": AAggFFAdaptive,
    "aaggff-p": AAggFFPrivate,
    "krum": Krum,
    "geometric-median": GeometricMedian,
}

SERVERS: dict[str, Callable[..., ServerRule]] = {
    "step": Step,
    "fedavgm": Momentum,
    "fedadam": Adam,
    "fedyogi": Yogi,
    "fedadagrad": Adagrad,
}

Parameters = dict[str, Any]


def is_method(name: object) -> bool:
    """Whether a name is a method: ours, a file's (my_rule.py:Rule) or an installed package's."""
    return isinstance(name, str) and (name in METHODS or plugins.is_foreign("method", name))


def method(name: str) -> Method:
    """A method by name. A client rule of a file or a package is a method with the mixing and server of FedAvg."""
    if name in METHODS:
        return METHODS[name]
    if not is_method(name):
        raise unknown("method", name, [*METHODS, *plugins.installed("method")])
    found = plugins.find("method", name)
    return found if isinstance(found, Method) else Method(_own_rule(found, ClientRule, name))


def mixing(name: str) -> Callable[..., MixingRule]:
    """A mixing rule by name."""
    return MIXINGS[name] if name in MIXINGS else _foreign("mixing", name, MixingRule, MIXINGS)


def server(name: str) -> Callable[..., ServerRule]:
    """A server rule by name."""
    return SERVERS[name] if name in SERVERS else _foreign("server", name, ServerRule, SERVERS)


def _foreign(kind: str, name: str, base: type, known: Iterable[str]) -> Callable[..., Any]:
    if not plugins.is_foreign(kind, name):
        raise unknown(f"{kind} rule", name, [*known, *plugins.installed(kind)])
    return _own_rule(plugins.find(kind, name), base, name)


def _own_rule(found: Any, base: type, name: str) -> Callable[..., Any]:
    """A rule that is not ours, checked for being one."""
    good = isinstance(found, type) and issubclass(found, base)
    require(good, name, f"must be a class that inherits from fedchord.{base.__name__}, got {found!r}")
    record = dataclasses.is_dataclass(found)
    require(record, name, "must be a dataclass: put @dataclass(frozen=True) above the class")
    rule: Callable[..., Any] = found
    return rule


def fields(rule: Callable[..., object]) -> dict[str, Any]:
    """A rule's hyperparameters and their defaults."""
    if isinstance(rule, partial):
        return fields(rule.func) | rule.keywords
    return {f.name: _default(f) for f in dataclasses.fields(rule) if f.init}  # type: ignore[arg-type]


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def build(
    name: str,
    method: Parameters | None = None,
    mixing: str | None = None,
    mixing_parameters: Parameters | None = None,
    server: str | None = None,
    server_parameters: Parameters | None = None,
    client_parameters: Parameters | None = None,
) -> Algorithm:
    """An algorithm by name, with rules exchanged and hyperparameters set.

    `method` parameters go to the one rule of the named method that has them; `mixing_parameters`,
    `server_parameters` and `client_parameters` to theirs.
    """
    makers = _makers(name, mixing, server)
    exchanged = {"mixing": mixing, "server": server}
    values: dict[str, Parameters] = {
        "client": dict(client_parameters or {}),
        "mixing": dict(mixing_parameters or {}),
        "server": dict(server_parameters or {}),
    }
    for key, value in (method or {}).items():
        owners = [part for part, maker in makers.items() if key in fields(maker) and not exchanged.get(part)]
        if not owners:
            known = sorted({f for part, maker in makers.items() if not exchanged.get(part) for f in fields(maker)})
            raise unknown(f"parameter of {name}", f"method.{key}", [f"method.{f}" for f in known])
        if len(owners) > 1:
            raise FedchordError(
                f"method.{key} is ambiguous for {name}: write {' or '.join(f'{o}.{key}' for o in owners)}"
            )
        if key in values[owners[0]]:
            raise FedchordError(f"method.{key} and {owners[0]}.{key} are the same parameter; give one of them")
        values[owners[0]][key] = value
    for part, maker in makers.items():
        for key in values[part]:
            if key not in fields(maker):
                raise unknown(f"parameter of {_title(maker)}", f"{part}.{key}", [f"{part}.{f}" for f in fields(maker)])
    rules: dict[str, Any] = {part: _made(part, maker, values[part]) for part, maker in makers.items()}
    parts = [name] + [f"{part}={rule}" for part, rule in exchanged.items() if rule]
    return Algorithm(**rules, name=" ".join(parts))


def _makers(name: str, mixing_name: str | None, server_name: str | None) -> dict[str, Callable[..., Any]]:
    """What makes the three rules."""
    entry = method(name)
    return {
        "client": entry.client,
        "mixing": mixing(mixing_name) if mixing_name else entry.mixing,
        "server": server(server_name) if server_name else entry.server,
    }


def _made(part: str, maker: Callable[..., Any], values: Parameters) -> Any:
    """A rule; one that is not ours may need parameters, or raise anything."""
    missing = [key for key, default in fields(maker).items() if default is dataclasses.MISSING and key not in values]
    if missing:
        raise fail(_title(maker), f"needs {part}.{missing[0]}; write {part}.{missing[0]}=VALUE")
    try:
        return maker(**values)
    except (TypeError, ValueError) as error:
        module = sys.modules.get(getattr(maker, "__module__", ""))
        raise plugins.failed(_title(maker), str(getattr(module, "__file__", "") or ""), error) from None


def _title(maker: Callable[..., object]) -> str:
    return _title(maker.func) if isinstance(maker, partial) else maker.__name__
