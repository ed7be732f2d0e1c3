"""Which settings may change while running, as the settings class says it."""

from __future__ import annotations

import pytest

from services.coordinator.settings import RUNTIME_SETTINGS, CoordinatorSettings
from shared.errors import InvalidValue

STARTED = CoordinatorSettings(batch_units=32)


def test_type_range_choices_and_help_come_from_the_settings_class() -> None:
    batch, window, budget = (
        RUNTIME_SETTINGS.settings[name] for name in ("batch_units", "rollout_window_s", "preemption_pdb")
    )
    assert (batch.type, batch.default, batch.minimum, batch.maximum, batch.above) == ("integer", 64, 1, 1024, False)
    assert (window.type, window.minimum, window.maximum, window.above) == ("number", 0, 86_400, True)
    assert (budget.type, budget.choices) == ("string", ("best-effort", "strict"))
    assert all(setting.help for setting in RUNTIME_SETTINGS.settings.values())


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"batch_units": 0}, "batch_units: 0 cannot be used; give an integer from 1 to 1024"),
        ({"batch_units": True}, "batch_units: True cannot be used; give an integer from 1 to 1024"),
        ({"batch_units": 3.5}, "batch_units: 3.5 cannot be used; give an integer from 1 to 1024"),
        ({"batch_units": "3"}, "batch_units: '3' cannot be used; give an integer from 1 to 1024"),
        ({"metrics_every_s": 1e-300}, "metrics_every_s: 1e-300 cannot be used; give a number from 0.01 to 3600"),
        ({"rollout_window_s": 0}, "rollout_window_s: 0 cannot be used; give a number above 0 up to 86400"),
        ({"rollout_window_s": float("nan")}, "rollout_window_s: nan cannot be used; give a number above 0 up to 86400"),
        ({"log_level": "loud"}, "log_level: 'loud' cannot be used; give one of debug, info, warning, error"),
        ({"batch_unit": 3}, "batch_unit: cannot be changed while running; did you mean batch_units?"),
        ({"etcd": "x"}, "etcd: cannot be changed while running; there are batch_units, "),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_what_is_allowed(values: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        RUNTIME_SETTINGS.validate(values)
    assert str(refused.value).startswith(told)
    assert refused.value.code == "invalid_value"


def test_every_setting_is_shown_with_where_its_value_comes_from() -> None:
    shown = {
        item.setting.name: (item.value, item.source) for item in RUNTIME_SETTINGS.shown(STARTED, {"log_level": "debug"})
    }
    assert shown["batch_units"] == (32, "start")
    assert shown["log_level"] == ("debug", "runtime")
    assert shown["plans_in_flight"] == (3, "default")
    assert list(shown) == list(RUNTIME_SETTINGS.settings)


def test_a_value_of_another_version_is_told_and_the_others_hold() -> None:
    good, problems = RUNTIME_SETTINGS.usable({"batch_units": 0, "later_setting": 1, "plans_in_flight": 5})
    assert good == {"plans_in_flight": 5}
    assert len(problems) == 2
    assert RUNTIME_SETTINGS.applied(STARTED, good).plans_in_flight == 5
    assert RUNTIME_SETTINGS.applied(STARTED, good).batch_units == 32
