"""Rows that are arrays of features to be scaled."""

from __future__ import annotations

from fedchord.export.standalone.arrays import read
from fedchord.export.standalone.table import ready

__all__ = ["read", "ready"]
