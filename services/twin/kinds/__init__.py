"""The kinds that the twin's API server serves: one strategy per kind, and the table of all of them."""

from __future__ import annotations
