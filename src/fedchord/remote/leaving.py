"""What would leave a node, in words: names, shapes and bytes, and nothing is sent."""

from __future__ import annotations
