"""The setting ``power_curves``: read at start, the same for agents and coordinators, refused in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.agent.settings import AgentSettings
from services.coordinator.settings import CoordinatorSettings
from services.single.settings import SingleSettings
from shared.errors import ConfigError
from shared.model.power import MOST_BYTES, PUBLISHED
from shared.runtime.process.plugins import profile_of, titles_of
from shared.runtime.process.settings import load
from shared.wire.records import plugins_differ

KINDS = (AgentSettings, CoordinatorSettings, SingleSettings)


def flags(path) -> dict[str, str]:
    return {"power_curves": str(path)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_taken_over_what_is_published(kind, tmp_path):
    file = tmp_path / "curves.toml"
    file.write_text("[gpus.T4]\nidle = 9\npeak = 71\n")
    settings = load(kind, flags=flags(file))
    power = profile_of(settings.plugins, settings.gpu_shares, settings.power_curves).power
    assert (power.of_gpu("T4").idle, power.of_gpu("T4").peak) == (9, 71)


def test_without_one_what_is_published_holds():
    assert profile_of((), "").power == PUBLISHED


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[gpus.T4]\nidle = 10", "gpus.'T4': Object missing required field `peak`"),
        (b"#" * (MOST_BYTES + 1), "more than"),
    ],
)
def test_a_file_that_is_wrong_keeps_the_service_from_starting(kind, content, told, tmp_path):
    file = tmp_path / "curves.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load(kind, flags=flags(file))
    assert told in str(refused.value)
    assert "power_curves: " in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_breaks_or_changes_while_the_process_runs_counts_from_the_next_start_on(tmp_path):
    """Each pause, drain and change of settings asks for the core's settings again."""
    file = tmp_path / "curves.toml"
    file.write_text("[gpus.T4]\nidle = 9\npeak = 71\n")
    settings = load(CoordinatorSettings, flags=flags(file))
    before = settings.core()
    for content in ("[gpus.T4]\nidle = 9\npeak = 700\n", "[gpus.T4"):
        file.write_text(content)
        assert replace(settings, batch_units=7).core().profile.power == before.profile.power
    file.unlink()
    assert settings.core().profile.power.of_gpu("T4").peak == 71


def test_processes_that_rank_by_other_curves_are_told_and_those_that_rank_nothing_are_not(tmp_path):
    titles = []
    for number, peak in enumerate((71, 71.0, 90)):
        file = tmp_path / f"{number}.toml"
        file.write_text(f"# {number}\n[gpus.T4]\nidle = 9\npeak = {peak}\n")
        titles.append(titles_of((), file))
    first, same, other = titles
    assert titles_of((), None) == ()
    for service in ("agent", "coordinator"):
        assert plugins_differ(service, first, same) == ""
        assert f"has the plugins {other[0]}, the coordinator {first[0]}: they may rank" in plugins_differ(
            service, other, first
        )
        assert "has the plugins none" in plugins_differ(service, (), first)
    assert plugins_differ("binder", (), first) == ""
    assert "it may refuse" in plugins_differ("binder", (), ("filter nice@1", *first))
