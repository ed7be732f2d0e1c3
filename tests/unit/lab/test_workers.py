"""However many workers there are, and wherever they are, the results are the same and in order; nobody stays behind."""

from __future__ import annotations

import importlib.util
import math
import multiprocessing

import pytest

from lab.workers import Workers
from shared.errors import ConfigError

ITEMS = [9, 4, 1, 16]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_items(workers):
    with Workers(workers) as pool:
        assert list(pool.map(math.sqrt, ITEMS)) == [3, 2, 1, 4]


def test_a_fault_of_one_item_is_raised_and_no_process_is_left():
    def ask():
        with Workers(2) as pool:
            list(pool.map(math.sqrt, [4, -1, 9]))

    with pytest.raises(ValueError, match=r"domain error|nonnegative"):
        ask()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [0, 65])
def test_a_number_of_workers_that_cannot_be_is_refused(workers):
    with pytest.raises(ConfigError, match="give 1 to 64"):
        Workers(workers)


def test_a_ray_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'conclave-scheduler\[ray\]'"):
        Workers(ray="local")


@pytest.mark.process
@pytest.mark.filterwarnings("default")  # of Ray's own making
def test_a_ray_of_this_machine_gives_the_same_results(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else it writes a token to the home folder
    pytest.importorskip("ray", reason="ray is not installed: the extra ray")
    with Workers(ray="local") as pool:
        assert list(pool.map(math.sqrt, ITEMS)) == [3, 2, 1, 4]
