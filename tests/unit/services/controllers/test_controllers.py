"""Both controllers in one process: settings of both services, routes and figures of both, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.autoscaler.admin import ScalerAdmin
from services.autoscaler.settings import AutoscalerSettings
from services.controllers.settings import ControllersSettings
from services.jobs.admin import JobsAdmin
from services.jobs.settings import JobsSettings
from shared.errors import ConfigError
from shared.runtime.http.peers import FiguresRoute
from shared.runtime.leading import Faces
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.settings import leaves, load


def test_a_setting_of_either_service_counts() -> None:
    settings = load(ControllersSettings, flags={"status-every-s": "7", "max-rounds": "5", "kubeconfig": "/k"})
    assert (settings.core().status_every_s, settings.scaler_core().most_rounds) == (7, 5)
    assert settings.kubeconfig == Path("/k")


def test_each_decides_as_often_as_alone_and_has_a_setting_of_its_own_for_it() -> None:
    settings = load(ControllersSettings)
    assert settings.core().decide_every_s == JobsSettings().core().decide_every_s
    assert settings.scaler_core() == AutoscalerSettings().scaler_core()
    settings = load(ControllersSettings, flags={"decide-every-s": "41", "autoscale-every-s": "3"})
    assert (settings.core().decide_every_s, settings.scaler_core().decide_every_s) == (41, 3)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"decide-every-s": "1", "decide-least-s": "2"}, "decide_every_s: is below"),
        ({"prometheus-ca": "/none"}, "prometheus_ca: is for prometheus"),
        ({"report-url": "http://h"}, "report_url: is given without"),
        ({"autoscale-every-s": "0.1"}, "autoscale"),
    ],
)
def test_what_either_service_refuses_is_refused(flags: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(ControllersSettings, flags=flags)


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("JOBS_DECIDE_EVERY_S", "DECIDE_EVERY_S"),
        ("AUTOSCALER_DECIDE_EVERY_S", "AUTOSCALE_EVERY_S"),
        ("AUTOSCALER_MAX_ROUNDS", "MAX_ROUNDS"),
        ("JOBS_SEED", "SEED"),
    ],
)
def test_what_is_given_to_either_service_alone_is_refused_unless_the_process_has_its_own(
    given: str, instead: str
) -> None:
    theirs, ours = f"CONCLAVE_{given}", f"CONCLAVE_CONTROLLERS_{instead}"
    with pytest.raises(ConfigError, match=f"^{theirs}: is for a process of that service alone; give {ours} here$"):
        load(ControllersSettings, service="controllers", environ={theirs: "3"})
    settings = load(ControllersSettings, service="controllers", environ={theirs: "3", ours: "7"})
    assert getattr(settings, instead.lower()) == 7


def test_every_setting_that_is_called_otherwise_here_is_there_under_both_names() -> None:
    theirs: dict[str, type] = {"jobs": JobsSettings, "autoscaler": AutoscalerSettings}
    here = {leaf.env.removeprefix("CONCLAVE_") for leaf in leaves(ControllersSettings)}
    assert ControllersSettings.COMPOSES.keys() == theirs.keys()
    for service, otherwise in ControllersSettings.COMPOSES.items():
        there = {leaf.env.removeprefix("CONCLAVE_") for leaf in leaves(theirs[service])}
        assert otherwise.keys() <= there
        assert {otherwise.get(name, name) for name in there} <= here


def test_what_the_kubelet_tells_of_services_that_are_called_as_ours_are_is_no_setting() -> None:
    environ = {
        "CONCLAVE_JOBS_REPORTS_SERVICE_HOST": "10.0.0.1",
        "CONCLAVE_AUTOSCALER_PORT": "tcp://10.0.0.2:8080",
        "CONCLAVE_AUTOSCALER_PORT_8080_TCP_ADDR": "10.0.0.2",
    }
    assert load(ControllersSettings, service="controllers", environ=environ) == ControllersSettings()


@pytest.mark.parametrize("field", ["tls", "etcd"])
def test_certificates_of_one_role_are_refused(tmp_path: Path, field: str) -> None:
    flags = {f"{field}-{part}": str(tmp_path / part) for part in ("cert", "key", "ca")}
    if field == "etcd":
        flags["etcd"] = "https://127.0.0.1:2379"
    with pytest.raises(ConfigError, match=f"{field}_cert: .*run jobs and autoscaler each"):
        load(ControllersSettings, flags=flags)


def test_every_route_of_both_is_there_once_and_the_status_tells_of_both() -> None:
    jobs, scaler = JobsAdmin("c-0"), ScalerAdmin("c-0")
    routes = Faces(jobs, autoscaler=scaler).routes()
    found = {route.path: route for route in routes}
    assert len(found) == len(routes)
    assert found.keys() == {route.path for route in (*jobs.routes(), *scaler.routes())}
    status = found["/v1/status"]
    assert isinstance(status, FiguresRoute)
    told = status.read()
    assert (told["leading"], told["autoscaler"]["leading"]) == (False, False)


def test_figures_of_both_fit_into_one_registry() -> None:
    metrics = Metrics("controllers")
    JobsAdmin("c-0").register(metrics)
    ScalerAdmin("c-0").register(metrics)
    shown = set(metrics.exposition().decode().splitlines())
    assert {'conclave_leader{role="jobs"} 0.0', 'conclave_leader{role="autoscaler"} 0.0'} <= shown
    assert {"jobs", "autoscaler"} <= metrics.stats().keys()
