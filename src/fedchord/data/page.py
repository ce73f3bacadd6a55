"""A federation as a notebook shows it: the sizes of its parts, and of few clients the split: a picture and a table."""

from __future__ import annotations

from fedchord import notebook
from fedchord.data.federation import Federation
from fedchord.data.picture import split_figure

CLIENTS = 100
"""Of so many clients there are a picture and a table; more would be a burden for the notebook's file."""


def page(federation: Federation, size: str) -> str:
    """The federation in HTML; `size` are its numbers in words."""
    parts = {name: federation.part(name).sizes for name in ("train", "validation", "test")}
    rows = [
        [name, *(f"{number:g}" for number in (sizes.sum(), sizes.min(), sizes.double().median(), sizes.max()))]
        for name, sizes in parts.items()
    ]
    found = [
        notebook.paragraph(f"{federation.name}: {size}", strong=True),
        notebook.table(["part", "rows", "smallest client", "median", "largest"], rows),
    ]
    if federation.num_clients <= CLIENTS:
        if federation.columns["y"].ndim == 1:
            found.append(notebook.picture(split_figure(federation), f"the split of {federation.name}"))
        numbers = zip(*(sizes.tolist() for sizes in parts.values()), strict=True)
        named = zip(federation.client_names, numbers, strict=True)
        clients = [[name, *map(str, row)] for name, row in named]
        found.append(notebook.folded("clients", notebook.table(["client", *parts], clients)))
    return f"<div>{''.join(found)}</div>"
