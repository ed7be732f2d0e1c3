"""Marks everything in this folder: it needs a Docker engine or a browser, and `make test` leaves it out."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """This hook of a folder hears of its own tests alone."""
    item.add_marker(pytest.mark.e2e)
