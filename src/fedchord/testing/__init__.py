"""What every method must do, as tests: for a rule of your own, by a class (`Contract`) or by the options of pytest.

    pytest --fedchord-method my_rule.py:Rule

`Contract` is imported when it is first used: pytest loads the plug-in of this package whenever it starts, and should
not have to wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedchord.testing.contract import Contract
    from fedchord.testing.named import Named, checks

__all__ = ["Contract", "Named", "checks"]

_HOMES = {"Contract": "contract", "Named": "named", "checks": "named"}


def __getattr__(name: str) -> Any:
    """A name on its first use (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(f"fedchord.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedchord.testing' has no attribute {name!r}")
