"""Argument checks: the only place where the wording of a user's error is decided.

Every mistake a user can make raises `FedchordError` with one line that names the owner, the argument, what was
expected and what was got, e.g. ``SuPerFed: warmup must be between 0 and 1, got 40``. The command line prints that
line and exits with code 2.
"""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Iterable

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class FedchordError(ValueError):
    """A mistake in the user's input, told in one line: what breaks lines or moves a cursor, as names in a file may,
    becomes a space."""

    def __init__(self, message: str = "") -> None:
        super().__init__(_UNSEEN.sub(" ", message))


class RowsMissing(FedchordError):
    """Rows are needed, and only what is known about them is here."""


class Unwritten(FedchordError):
    """A file or a folder cannot be written: the disk is full, the place is read-only, a file is in the way."""


class FedchordWarning(UserWarning):
    """Something that is probably not meant, told in one line; the command prints it and goes on."""


def warn(owner: str, message: str) -> None:
    """Warn that `owner: message`."""
    warnings.warn(f"{owner}: {message}", FedchordWarning, stacklevel=3)


def fail(owner: str, message: str) -> FedchordError:
    """The error `owner: message`; the caller raises it."""
    return FedchordError(f"{owner}: {message}")


def require(condition: bool, owner: str, message: str) -> None:
    """Raise `owner: message` unless the condition holds."""
    if not condition:
        raise fail(owner, message)


def number(owner: str, name: str, value: object) -> float:
    """A finite real number (not a bool)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise fail(owner, f"{name} must be a finite number, got {value!r}")
    return float(value)


LARGEST = 2**63 - 1
"""The largest whole number that a tensor holds."""


def whole(owner: str, name: str, value: object, low: int = 0, high: int = LARGEST) -> int:
    """A whole number of at least `low`, and of at most `high`, which stops what nobody can mean."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise fail(owner, f"{name} must be a whole number of at least {low}, got {value!r}")
    if value > high:
        raise fail(owner, f"{name} must be at most {high}, got {value!r}")
    return value


def between(owner: str, name: str, value: object, low: float, high: float) -> float:
    """A number in the closed interval [low, high]."""
    real = number(owner, name, value)
    if not low <= real <= high:
        raise fail(owner, f"{name} must be between {low:g} and {high:g}, got {value!r}")
    return real


def at_least(owner: str, name: str, value: object, low: float) -> float:
    """A number of at least `low`."""
    real = number(owner, name, value)
    if real < low:
        raise fail(owner, f"{name} must be at least {low:g}, got {value!r}")
    return real


def positive(owner: str, name: str, value: object) -> float:
    """A number above zero."""
    real = number(owner, name, value)
    if real <= 0:
        raise fail(owner, f"{name} must be above 0, got {value!r}")
    return real


def below(owner: str, name: str, value: object, high: float) -> float:
    """A number in the half-open interval [0, high)."""
    real = number(owner, name, value)
    if not 0 <= real < high:
        raise fail(owner, f"{name} must be at least 0 and below {high:g}, got {value!r}")
    return real


def one_of(owner: str, name: str, value: object, options: Iterable[str]) -> str:
    """One of a few words."""
    known = list(options)
    if value not in known:
        raise fail(owner, f"{name} must be one of {', '.join(known)}, got {value!r}")
    return str(value)


def unknown(kind: str, name: str, options: Iterable[str], see: str = "") -> FedchordError:
    """The error for a name nobody knows: the nearest match first, then the whole list if it is short, else where to
    `see` it."""
    known = sorted(options)
    plain = {option.lower(): option for option in known}
    near = difflib.get_close_matches(name.lower(), plain, n=1, cutoff=0.5)
    hint = f"; did you mean {plain[near[0]]!r}?" if near else ""
    listing = f" (known: {', '.join(known)})" if len(known) <= 60 else f" (see: {see})" if see else ""
    return FedchordError(f"unknown {kind} {name!r}{hint}{listing}")
