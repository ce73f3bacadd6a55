"""The index behind `fedchord list` and `study list`, made from the catalogue by `python -m fedchord.cli.index`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import MISSING, asdict
from functools import partial
from typing import Any

from fedchord import models
from fedchord.catalog import METHODS, MIXINGS, SERVERS, Method, fields
from fedchord.cli.listing import INDEX, Entry, Section
from fedchord.data import PARTITIONS, SOURCES
from fedchord.experiments import study
from fedchord.experiments.config import about
from fedchord.experiments.loggers import LOGGERS
from fedchord.thesis import studies


def made() -> dict[str, Any]:
    """What the lists say, apart from which data are there."""
    makers = (_methods, _mixings, _servers, _splits, _models, _loggers, _keys)
    found = {section.title: asdict(section) for section in (make() for make in makers)}
    data = {
        name: {"title": source.title, "embedded": source.embedded, "files": source.files}
        for name, source in SOURCES.items()
    }
    return {"sections": found, "data": data, "studies": {name: _study(name) for name in studies.built_in()}}


def text() -> str:
    """The index as it is written."""
    return json.dumps(made(), indent=1, ensure_ascii=False) + "\n"


def _study(name: str) -> dict[str, Any]:
    plan = study.plan(studies.load(name))
    return {
        "title": plan.study.title,
        "methods": len(plan.study.methods),
        "settings": len(plan.study.settings),
        "seeds": len({job.seed for job in plan.jobs}),
        "runs": len(plan.jobs),
        "absent": len(plan.missing),
    }


def _methods() -> Section:
    entries = [Entry(name, method.about, _method_parameters(method)) for name, method in METHODS.items()]
    own = Entry("FILE.py:NAME", "your own client rule, or a catalog.Method of three rules")
    return Section("methods", "method=NAME, parameters method.x=VALUE", (*entries, own))


def _method_parameters(method: Method) -> str:
    parts = {"client": method.client, "mixing": method.mixing, "server": method.server}
    owners = [(part, name, default) for part, rule in parts.items() for name, default in _defaults(rule)]
    names = [name for _, name, _ in owners]
    return "  ".join(
        f"{'method' if names.count(name) == 1 else part}.{name}={_shown(default)}" for part, name, default in owners
    )


def _models() -> Section:
    entries = []
    for name, model in models.MODELS.items():
        module = models.build(name, model.shape, model.classes)
        size = sum(parameter.numel() for parameter in module.parameters())
        sides = "x".join(map(str, (*model.shape[1:], *model.shape[:1])))
        outputs = f"{model.classes:,} class{'es' if model.classes > 1 else ''}"
        entries.append(Entry(name, f"{_first_line(type(module))} {size:,} parameters at {sides}, {outputs}"))
    for name, kind in models.GENERATIVE.items():
        module = models.build(name, (1, 28, 28), 10)
        size = sum(parameter.numel() for parameter in module.parameters())
        entries.append(Entry(name, f"{_first_line(kind)} {size:,} parameters at 28x28x1, 10 classes; {name}:WIDTH"))
    encoder = Entry("encoder:FOLDER", f"{_first_line(models.TextEncoder)} Needs the extra text")
    own = Entry("FILE.py:NAME", "your own nn.Module, or a function that builds one; arguments model.x=VALUE")
    return Section("models", "model=NAME; efficientnet-b0:FILE reads weights", (*entries, encoder, own))


def _splits() -> Section:
    entries = [Entry(name, _first_line(kind), _parameters("split", kind)) for name, kind in PARTITIONS.items()]
    return Section("splits", "split=NAME, parameters split.x=VALUE", tuple(entries))


def _mixings() -> Section:
    entries = [Entry(name, _first_line(rule), _parameters("mixing", rule)) for name, rule in MIXINGS.items()]
    own = Entry("FILE.py:NAME", "your own mixing rule")
    return Section("mixings", "mixing=NAME with any method, parameters mixing.x=VALUE", (*entries, own))


def _servers() -> Section:
    entries = [Entry(name, _first_line(rule), _parameters("server", rule)) for name, rule in SERVERS.items()]
    own = Entry("FILE.py:NAME", "your own server rule")
    return Section("servers", "server=NAME with any method, parameters server.x=VALUE", (*entries, own))


def _loggers() -> Section:
    entries = [Entry(name, f"{_first_line(kind)} Needs the extra {name}") for name, kind in LOGGERS.items()]
    own = Entry("FILE.py:NAME", "your own: a class, or a function that makes an object, with begin, round and end")
    return Section("loggers", "log=NAME, or several with commas", (*entries, own))


def _keys() -> Section:
    entries = [
        Entry(key, text if default is None else f"{text} (default: {_shown(default)})")
        for key, (default, text) in about().items()
    ]
    return Section("keys", "key=VALUE on the command line, the same names in a TOML file", tuple(entries))


def _defaults(rule: Callable[..., object]) -> list[tuple[str, Any]]:
    return list(fields(rule).items())


def _parameters(owner: str, rule: Callable[..., object]) -> str:
    return "  ".join(f"{owner}.{name}={_shown(default)}" for name, default in _defaults(rule))


def _shown(default: object) -> str:
    if default is MISSING:
        return "(needed)"
    if default is None:
        return "(by the rule)"
    if default == "":
        return "(none)"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _first_line(kind: object) -> str:
    kind = kind.func if isinstance(kind, partial) else kind
    return (inspect.getdoc(kind) or "").partition("\n")[0]


if __name__ == "__main__":
    INDEX.write_text(text(), encoding="utf-8")
