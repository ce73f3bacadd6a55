"""A plan: what server and nodes must know alike. The settings of a run, and what the data look like, without a row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import fedchord
from fedchord import catalog, models
from fedchord.check import fail, require
from fedchord.core.local import Guard
from fedchord.core.round import Plan as Course
from fedchord.core.rules import Algorithm
from fedchord.data import outline
from fedchord.data.alone import impersonal
from fedchord.data.federation import Federation
from fedchord.engine.work import Work
from fedchord.experiments import keys
from fedchord.experiments.config import RunConfig
from fedchord.experiments.reading import NOWHERE
from fedchord.experiments.settings import flatten
from fedchord.metrics import check_kind
from fedchord.privacy.shield import shield
from fedchord.safe import json_of

FORMAT = 1
ABOUT_ROWS = (keys.Data, keys.Split, keys.Newcomers, keys.Synthetic, keys.Weathered, keys.Hostile)
ROWS = frozenset(keys.key_of(part) for record in ABOUT_ROWS for part in record.__dataclass_fields__.values())
ELSEWHERE = (ROWS - {"test", "validation"}) | {
    "noise",
    "noise.rate",
    "augment",
    "code",
    "executor",
    "workers",
    "device",
    "out",
    "data.root",
}
"""Keys of a run that a plan does not have: they are about rows, or about one machine."""
SIMULATED = ("central", "choose", "eval_clients")
"""Keys (with those below them) of runs in one place alone: nodes neither choose together nor share rows yet."""


def facts(federation: Federation, ranges: bool = False) -> Federation:
    """What every party may know of the data: the outline of a federation without what is one client's alone."""
    return impersonal(outline.outline(federation, ranges))


@final
@dataclass(frozen=True)
class Plan:
    """The settings of a run by key, and the outline of its data. `Plan.of` makes one."""

    settings: Mapping[str, Any]
    outline: Federation

    @staticmethod
    def of(settings: Mapping[str, Any], federation: Federation) -> Plan:
        """From keys of a run and a federation, with rows or without; choices that are left open are made here."""
        asked = flatten(settings)
        for key in asked:
            require(key not in ELSEWHERE, "plan", f"{key} is about rows or one machine, not about what all do alike")
            require(
                key.split(".")[0] not in SIMULATED, "plan", f"{key} is for simulations, not for several machines yet"
            )
        asked["model"] = str(asked.get("model") or _usual_model(str(asked.get("method", "fedavg")), federation))
        samples = RunConfig.from_values(_placed(asked, federation)).algorithm().outcome == "samples"
        known = facts(federation, ranges=samples)
        made = RunConfig.from_values(_placed(asked, known)).values()
        return Plan({key: _plain(value) for key, value in made.items() if key not in ELSEWHERE}, known)

    @staticmethod
    def from_run(config: RunConfig, federation: Federation) -> Plan:
        """The plan of a run that is known: what it would be with its rows elsewhere."""
        given = config.values() | {"model": config.choices()["model"]}
        return Plan.of({key: value for key, value in given.items() if key not in ELSEWHERE}, federation)

    def text(self) -> str:
        """The plan as JSON, for a file or a message; the outline is told by its hash."""
        told = {"format": FORMAT, "version": fedchord.__version__, "settings": dict(self.settings)}
        return (
            json.dumps(told | {"outline": self.mark, "fingerprint": self.fingerprint}, indent=1, sort_keys=True) + "\n"
        )

    @staticmethod
    def read(text: str, known: Federation) -> Plan:
        """The plan that a text holds, with its outline, which must be the very one."""
        try:
            told = json_of(text)
            version, settings, mark, fingerprint = (
                told[name] for name in ("version", "settings", "outline", "fingerprint")
            )
            found = Plan(dict(settings), impersonal(known))
        except (ValueError, KeyError, TypeError):
            raise fail("plan", "is damaged, or no plan") from None
        here = fedchord.__version__
        require(version == here, "plan", f"was made by fedchord {version}, this is {here}")
        require(found.mark == mark, "plan", "is for other data: the outline is not the one it was made with")
        require(found.fingerprint == fingerprint, "plan", "was changed: its settings do not fit its fingerprint")
        return found

    @cached_property
    def mark(self) -> str:
        """The hash of the outline."""
        return outline.digest(self.outline)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that changes the result, code of your own included."""
        code = [part for part in self.config.present_code().split(", ") if part and not part.startswith("data ")]
        told = (self.config.fingerprint(*ELSEWHERE), self.mark, code, fedchord.__version__)
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    # -- what it stands for ----------------------------------------------------------------------------------------

    @cached_property
    def config(self) -> RunConfig:
        """The settings as a run has them."""
        return RunConfig.from_values(_placed(dict(self.settings), self.outline))

    @property
    def algorithm(self) -> Algorithm:
        """The three rules."""
        return self.config.algorithm()

    @property
    def course(self) -> Course:
        """Rounds, cohort and seed."""
        return self.config.plan()

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self.outline.num_clients

    def work(self, federation: Federation | None = None, guards: tuple[Guard, ...] = (), secret: bytes = b"") -> Work:
        """The work of the run, with a task of its own, on rows or without any; the `secret` keys the server's noise."""
        config = self.config
        task, rows = config.task(self.outline), self.outline if federation is None else federation
        training = config.training()
        hidden = shield(config.algorithm(), config.private(), task, self.outline, self.course, training, secret)
        shielded = ((*hidden.guards, *guards), False, hidden.hiding, config.packing())
        return Work.of(hidden.algorithm, hidden.task, rows, training, config.seed, "cpu", *shielded)

    def metrics(self, usual: tuple[str, ...]) -> tuple[str, ...] | None:
        """What is measured where more than the usual is asked for."""
        more = self.config.metrics
        names = tuple(dict.fromkeys((*usual, *more))) if more else None
        check_kind(names or (), self.outline.regression)
        return names


def _placed(settings: Mapping[str, Any], known: Federation) -> dict[str, Any]:
    """Settings that a run takes though it has no data of its own."""
    return dict(settings) | {"data": NOWHERE, "split": "iid", "clients": known.num_clients}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _usual_model(method: str, known: Federation) -> str:
    """The model unless one is named: by the method, else by the shape of a row."""
    usual, pictures = catalog.method(method).model, len(known.shape) == 3
    if usual and (usual in models.GENERATIVE or pictures):
        return usual
    tokens = not known.example()["x"].is_floating_point()
    require(not tokens, "plan", f"{known.name} has rows of token numbers; name the model")
    return "twocnn" if pictures else "twonn"
