"""What a run that ends with samples writes down beside its metrics: utility and bounds, quality, privacy, traffic.

`numbers` holds what tables can show, each with a mean like any metric: `official` (the headline metric on the official
test rows), `upper` and `lower` (the bounds on the clients' rows; `..._official` on the official ones), `frechet` and
`kid` (with `real_frechet` and `real_kid` of as many real samples), `membership`; of rows that are vectors also `real`,
the same recipe on all clients' training rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedchord.synthetic import privacy
from fedchord.synthetic.features import extractor
from fedchord.synthetic.quality import Quality, quality
from fedchord.synthetic.set import SyntheticSet
from fedchord.synthetic.traffic import Traffic, traffic
from fedchord.synthetic.utility import Utilities, Utility, utilities

if TYPE_CHECKING:
    from fedchord.experiments.parts import Parts

Numbers = dict[str, dict[str, float | None]]


def synthesis(parts: Parts, made: SyntheticSet, lines: Sequence[dict[str, Any]], headline: str) -> dict[str, Any]:
    """The part `synthetic` of summary.json."""
    config, federation = parts.config, parts.federation
    judge = config.judged_by()
    found = utilities(judge, made, federation, config.seed)
    near = seen = None
    if config.judge_features is not None:
        near = quality(made, federation, extractor(config.judge_features, federation))
    if config.judge_privacy:
        seen = privacy.look(made, federation)
    numbers = _bounds(found, headline) | ({} if near is None else _distances(near))
    if seen is not None:
        numbers["membership"] = {"mean": seen.membership}
    return {
        "samples": len(made.y),
        "per_class": made.spc,
        "classifier": judge.told(made.shape),
        "metric": headline,
        "numbers": _plain(numbers),
        "utility": _plain(asdict(found)),
        "quality": None if near is None else _plain(asdict(near)),
        "privacy": None if seen is None else _plain(asdict(seen)),
        "traffic": _plain(_account(account(parts, made, lines))),
    }


def _bounds(found: Utilities, headline: str) -> Numbers:
    """The headline metric of the classifiers."""
    numbers: Numbers = {}
    for name, one in (("upper", found.upper), ("lower", found.lower), ("real", found.real)):
        if one is None:
            continue
        numbers[name] = {"mean": one.clients[headline], "std": one.spread[headline]}
        numbers |= _official(f"{name}_official", one, headline)
    return _official("official", found.synthetic, headline) | numbers


def _official(name: str, one: Utility, headline: str) -> Numbers:
    return {} if one.official is None else {name: {"mean": one.official[headline]}}


def _distances(near: Quality) -> Numbers:
    return {
        "frechet": {"mean": near.frechet},
        "kid": {"mean": near.kid},
        "real_frechet": {"mean": near.real_frechet[0], "std": near.real_frechet[1]},
        "real_kid": {"mean": near.real_kid[0], "std": near.real_kid[1]},
    }


def account(parts: Parts, made: SyntheticSet, lines: Sequence[dict[str, Any]]) -> Traffic:
    """Bytes per client and round of the run, beside those of its network and of ResNet-10."""
    visits = max(1, sum(len(line["cohort"]) for line in lines))
    up, down = (sum(line[f"bytes_{way}"] for line in lines) for way in ("up", "down"))
    own = parts.config.choices()["model"], parts.task.layout.size
    return traffic(up, down, visits, own, made.shape, made.classes)


def _account(found: Traffic) -> dict[str, Any]:
    return asdict(found) | {"ratios": found.ratios}


def _plain(value: Any) -> Any:
    """For JSON: None where a number is not finite."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
