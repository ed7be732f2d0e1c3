"""Every setting of every service says what it means, and no service's environment trips over another's."""

from __future__ import annotations

import dataclasses
import importlib
from collections import Counter
from typing import Any

import pytest

from services.cli.local.run import SERVICES as RUN
from services.extender.settings import ExtenderSettings
from services.sensor.settings import SensorSettings
from shared.errors import ConfigError
from shared.runtime.observe.masking import effective
from shared.runtime.process.process import ProcessSettings
from shared.runtime.process.settings import OF_SEVERAL, describe, help_text, leaves, load

SERVICES = ("agent", "autoscaler", "binder", "coordinator", "jobs", "learner", "rebalancer")


def settings_of(service: str) -> Any:
    """The service's settings class."""
    if (alone := {"sensor": SensorSettings, "extender": ExtenderSettings}.get(service)) is not None:
        return alone
    module = importlib.import_module("lab.serve.settings" if service == "learner" else f"services.{service}.settings")
    (found,) = (
        item
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, ProcessSettings) and item.__module__ == module.__name__
    )
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_has_a_text_that_help_shows(service: str):
    kind = settings_of(service)
    assert [leaf.dotted for leaf, text in describe(kind) if not text] == []
    shown = help_text(kind, service)
    assert all(f"--{leaf.flag} " in shown for leaf in leaves(kind))


@pytest.mark.parametrize("service", SERVICES)
def test_defaults_load_and_can_be_shown(service: str):
    kind = settings_of(service)
    required = {leaf.dotted: "x" for leaf in leaves(kind) if leaf.required}
    shown = effective(load(kind, service=service, environ={}, flags=required))
    assert set(shown) == {item.name for item in dataclasses.fields(kind)}


@pytest.mark.parametrize("service", SERVICES)
def test_one_environment_serves_all_services(service: str):
    environ = {
        "CONCLAVE_LOG_LEVEL": "warning",
        "CONCLAVE_AGENT_LISTEN": "127.0.0.1:1",
        "CONCLAVE_BINDER_LISTEN": "127.0.0.1:2",
        "CONCLAVE_COORDINATOR_LISTEN": "127.0.0.1:3",
        "CONCLAVE_LEARNER_LISTEN": "127.0.0.1:4",
        "CONCLAVE_JOBS_LISTEN": "127.0.0.1:5",
        "CONCLAVE_AUTOSCALER_LISTEN": "127.0.0.1:6",
        "CONCLAVE_REBALANCER_LISTEN": "127.0.0.1:7",
        "CONCLAVE_BINDER_SERVICE_HOST": "10.0.0.1",
        "CONCLAVE_COORDINATOR_PORT": "tcp://10.0.0.1:7070",
    }
    kind = settings_of(service)
    required = {leaf.dotted: "x" for leaf in leaves(kind) if leaf.required}
    loaded = load(kind, service=service, environ=environ, flags=required)
    port = {"agent": 1, "binder": 2, "coordinator": 3, "learner": 4, "jobs": 5, "autoscaler": 6, "rebalancer": 7}[
        service
    ]
    assert (loaded.listen, loaded.log_level) == (f"127.0.0.1:{port}", "warning")


def test_settings_that_several_services_have_are_known_to_the_others():
    names = Counter(leaf.env for service in SERVICES for leaf in leaves(settings_of(service)))
    assert {name for name, count in names.items() if 1 < count < len(SERVICES)} == OF_SEVERAL


@pytest.mark.parametrize("service", SERVICES)
def test_a_setting_of_several_services_stops_no_other_one(service: str):
    kind = settings_of(service)
    required = {leaf.dotted: "x" for leaf in leaves(kind) if leaf.required}
    loaded = load(kind, service=service, environ={"CONCLAVE_VALIDATE": "true"}, flags=required)
    assert getattr(loaded, "validate", True)


@pytest.mark.parametrize("service", RUN)
def test_what_is_given_to_one_service_alone_is_skipped_by_the_others_but_by_those_that_share_its_process(service: str):
    environ = {f"CONCLAVE_{service.upper()}_NO_SUCH": "1"}
    for other in RUN:
        kind = settings_of(other)
        required = {leaf.dotted: "h:1" for leaf in leaves(kind) if leaf.required}
        if other == service or service in getattr(kind, "COMPOSES", ()):
            with pytest.raises(ConfigError, match="NO_SUCH: unknown setting in the environment"):
                load(kind, service=other, environ=environ, flags=required)
        else:
            load(kind, service=other, environ=environ, flags=required)
