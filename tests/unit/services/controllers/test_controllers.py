"""Both controllers in one process: settings of both services, routes and figures of both, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.autoscaler.admin import Admin as AutoscalerAdmin
from services.autoscaler.settings import AutoscalerSettings
from services.controllers.settings import ControllersSettings
from services.jobs.admin import Admin as JobsAdmin
from services.jobs.settings import JobsSettings
from shared.errors import ConfigError
from shared.runtime.http.peers import FiguresRoute
from shared.runtime.leading import Faces
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.settings import load


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


@pytest.mark.parametrize("field", ["tls", "etcd"])
def test_certificates_of_one_role_are_refused(tmp_path: Path, field: str) -> None:
    flags = {f"{field}-{part}": str(tmp_path / part) for part in ("cert", "key", "ca")}
    if field == "etcd":
        flags["etcd"] = "https://127.0.0.1:2379"
    with pytest.raises(ConfigError, match=f"{field}_cert: .*run jobs and autoscaler each"):
        load(ControllersSettings, flags=flags)


def test_every_route_of_both_is_there_once_and_the_status_tells_of_both() -> None:
    jobs, scaler = JobsAdmin("c-0"), AutoscalerAdmin("c-0")
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
    AutoscalerAdmin("c-0").register(metrics)
    shown = set(metrics.exposition().decode().splitlines())
    assert {'conclave_leader{role="jobs"} 0.0', 'conclave_leader{role="autoscaler"} 0.0'} <= shown
    assert {"jobs", "autoscaler"} <= metrics.stats().keys()
