"""The setting ``load_parts``: names of parts, refused in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.agent.settings import AgentSettings
from services.coordinator.settings import CoordinatorSettings
from services.single.settings import SingleSettings
from shared.errors import ConfigError
from shared.model.load import DEFAULT, DEFAULT_TEXT, PARTS, parse_load_parts
from shared.runtime.process.plugins import profile_of, titles_of
from shared.runtime.process.settings import load
from shared.wire.records import plugins_differ

KINDS = (AgentSettings, CoordinatorSettings, SingleSettings)


def test_parts_are_watched_in_one_order_however_they_are_named():
    assert parse_load_parts(DEFAULT_TEXT) == DEFAULT == ("cpu", "memory")
    assert parse_load_parts("pods, disk ,cpu") == ("cpu", "disk", "pods")
    assert parse_load_parts(",".join(reversed(PARTS))) == PARTS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "told"),
    [("cpu,gpu", "'gpu' is no part"), ("", "'' is no part"), ("cpu,,disk", "'' is no part"), ("cpu,cpu", "twice")],
)
def test_what_names_no_part_keeps_a_service_from_starting(kind, text, told):
    with pytest.raises(ConfigError) as refused:
        load(kind, flags={"load_parts": text})
    assert "load_parts: " in str(refused.value)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_goes_by_what_is_set(kind):
    settings = load(kind, flags={"load_parts": "disk"})
    profile = profile_of(settings.plugins, settings.gpu_shares, settings.power_curves, settings.load_parts)
    assert profile.load_parts == ("disk",)
    assert kind is AgentSettings or replace(settings, batch_units=7).core().profile.load_parts == ("disk",)


def test_processes_that_watch_other_parts_are_told_and_those_that_rank_nothing_are_not():
    assert titles_of((), None) == titles_of((), None, "memory,cpu") == ()
    ours = titles_of((), None, "disk,cpu")
    assert ours == ("load-parts@cpu+disk",)
    assert "they may rank differently" in plugins_differ("agent", (), ours)
    assert plugins_differ("agent", ours, ours) == ""
    assert plugins_differ("binder", (), ours) == ""
