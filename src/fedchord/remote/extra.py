"""Whether Flower is installed: an extra, since it brings fifty packages."""

from __future__ import annotations

from importlib.util import find_spec

from fedchord.check import require


def need_flower(owner: str) -> None:
    """Refuse to go on without Flower."""
    require(find_spec("flwr") is not None, owner, "needs Flower: pip install 'fedchord[flower]'")
