"""The API reference: the public names alone, by room."""

from __future__ import annotations

from collections.abc import Iterable

import fedchord
from fedchord import catalog, data, models, testing
from fedchord.catalog import METHODS

INTRO = {
    "reference/index.md": ("fedchord", "The names in `fedchord.__all__`: what a program uses."),
    "reference/data.md": ("fedchord.data", "Data sets, splits, and readers for your own rows."),
    "reference/models.md": (
        "fedchord.models",
        "The models that come with the library; `fedchord list` has their short names.",
    ),
    "reference/testing.md": ("fedchord.testing", "What every method must do, as tests, for a rule of your own."),
    "reference/clients.md": ("Client rules", "What one client does in a round."),
    "reference/mixing.md": ("Mixing rules", "How much each client counts."),
    "reference/servers.md": ("Server rules", "What becomes of the mixed update."),
}


def pages() -> dict[str, str]:
    """Every page of the reference, by its place in the site."""
    homes = {name: f"{home}.{original}" for name, (home, original) in fedchord._PLACES.items()}
    found = {
        "reference/index.md": [homes[name] for name in fedchord.__all__],
        "reference/data.md": _named(data, data.__all__),
        "reference/models.md": _named(models, models.__all__),
        "reference/testing.md": _named(testing, testing.__all__),
        "reference/clients.md": _rules("client"),
        "reference/mixing.md": _rules("mixing"),
        "reference/servers.md": _rules("server"),
    }
    return {place: _page(*INTRO[place], paths) for place, paths in found.items()}


def _named(module: object, names: Iterable[str]) -> list[str]:
    """Classes and functions of a room that say what they are, where they are defined."""
    objects = [getattr(module, name) for name in names]
    return [f"{one.__module__}.{one.__qualname__}" for one in objects if hasattr(one, "__qualname__") and one.__doc__]


def _rules(part: str) -> list[str]:
    makers = [getattr(method, part) for method in METHODS.values()]
    makers += (
        [*catalog.MIXINGS.values()] if part == "mixing" else [*catalog.SERVERS.values()] if part == "server" else []
    )
    classes = [getattr(maker, "func", maker) for maker in makers]
    return list(dict.fromkeys(f"{one.__module__}.{one.__qualname__}" for one in classes))


def _page(title: str, about: str, paths: Iterable[str]) -> str:
    return f"# {title}\n\n{about}\n\n" + "\n".join(f"::: {path}\n" for path in paths)
