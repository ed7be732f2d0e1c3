"""Alerts and dashboards: the same for compose and Kubernetes, each alert with its runbook, nothing without meaning.

That every metric they ask for exists is held against a running mesh in ``tests/process/test_rbac_of_a_run.py``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.adapters.peers.identity import SERVICE_ROLES, identity_of
from tests.manifests.rendering import BUILDS, KUBECTL, ROOT, folder_of, needs_kubectl, of_kind

MONITORING = ROOT / "compose" / "monitoring"
DASHBOARDS = sorted((ROOT / "k8s/components/monitoring/dashboards").glob("*.json"))
MONITORING_PAGE = ROOT / "docs" / "operations" / "monitoring.md"
RUNBOOKS = ROOT / "docs" / "operations" / "runbooks.md"
RUNBOOKS_URL = "http://127.0.0.1:8701/ui/runbooks.html"
PROMTOOL = shutil.which("promtool")
REPORTS = "conclave-jobs-reports"
"""A Service for the workers of training jobs: nothing is scraped there."""


def groups() -> list[dict[str, Any]]:
    return yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]


def alerts() -> list[dict[str, Any]]:
    return [rule for group in groups() for rule in group["rules"]]


def test_the_operators_rules_are_those_of_compose() -> None:
    document = yaml.safe_load((ROOT / "k8s/components/monitoring/alerts.yaml").read_text())
    assert document["kind"] == "PrometheusRule"
    assert document["spec"] == {"groups": groups()}


def test_each_alert_has_a_runbook_that_says_what_to_do() -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOKS.read_text(), re.MULTILINE | re.DOTALL))
    names = [alert["alert"] for alert in alerts()]
    assert len(names) == len(set(names))
    assert sections.keys() == set(names)
    for alert in alerts():
        name = alert["alert"]
        assert alert["annotations"]["runbook_url"] == f"{RUNBOOKS_URL}#{name.lower()}"
        assert {"**Means.**", "**Look.**", "**Do.**"} <= set(re.findall(r"\*\*\w+\.\*\*", sections[name])), name


def test_alerts_say_how_bad_it_is() -> None:
    assert {alert["labels"]["severity"] for alert in alerts()} == {"critical", "warning", "info"}
    for alert in alerts():
        assert re.fullmatch(r"\d+[smh]", alert["for"]), alert["alert"]
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["description"]


AT_ONCE = {"ConclaveIntentsUnreadable", "ConclaveEtcdFull"}
"""Nothing of it heals by itself, and a placement may be lost meanwhile."""


def test_nobody_is_woken_by_what_heals_by_itself() -> None:
    unit_s = {"s": 1, "m": 60, "h": 3600}
    for alert in alerts():
        lasts_s = int(alert["for"][:-1]) * unit_s[alert["for"][-1]]
        least_s = 60 if alert["labels"]["severity"] == "critical" else 300
        assert lasts_s >= least_s or alert["alert"] in AT_ONCE, alert["alert"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda p: p.stem)
def test_dashboards_are_whole(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"] == path.stem
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"]
        assert all(target["expr"] for target in panel["targets"])
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@needs_kubectl
def test_dashboards_and_alerts_reach_the_cluster() -> None:
    maps = next(d for d in of_kind("prod+monitoring", "ConfigMap") if d["metadata"]["name"] == "conclave-dashboards")
    assert maps["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert {json.loads(text)["uid"] for text in maps["data"].values()} == {path.stem for path in DASHBOARDS}
    assert len(of_kind("prod+monitoring", "PrometheusRule")) == 1


@needs_kubectl
def test_one_address_sets_where_all_alerts_find_their_runbooks(tmp_path: Path) -> None:
    (said,) = re.findall(r"```yaml\n(configMapGenerator:.*?)```", MONITORING_PAGE.read_text(), re.DOTALL)
    overlay = folder_of("partition-agents").parent / tmp_path.name
    overlay.mkdir()
    more = {"resources": ["../partition-agents"], "components": ["../../components/monitoring"]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(more) + said)
    assert KUBECTL is not None
    output = subprocess.run([KUBECTL, "kustomize", str(overlay)], check=True, capture_output=True, text=True).stdout
    found = [document for document in yaml.safe_load_all(output) if document["kind"] == "PrometheusRule"]
    urls = [rule["annotations"]["runbook_url"] for group in found[0]["spec"]["groups"] for rule in group["rules"]]
    assert urls == [f"https://conclave.example.com/ui/runbooks.html#{alert['alert'].lower()}" for alert in alerts()]
    assert "conclave-runbooks" not in output


@needs_kubectl
@pytest.mark.parametrize("build", [build for build in BUILDS if "monitoring" in build])
def test_every_service_is_scraped_at_a_port_it_has(build: str) -> None:
    services = {
        d["metadata"]["labels"]["app.kubernetes.io/name"]: d["spec"]["ports"] for d in of_kind(build, "Service")
    }
    services.pop(REPORTS, None)
    scraped = set()
    for monitor in of_kind(build, "ServiceMonitor"):
        selector = monitor["spec"]["selector"]
        wanted = set(selector.get("matchLabels", {}).values())
        wanted |= {value for one in selector.get("matchExpressions", ()) for value in one["values"]}
        for name in wanted & services.keys():
            for endpoint in monitor["spec"]["endpoints"]:
                assert endpoint["port"] in {port["name"] for port in services[name]}
            scraped.add(name)
    assert scraped == services.keys()


@needs_kubectl
def test_where_services_speak_tls_prometheus_checks_each_ones_name() -> None:
    monitors = {d["metadata"]["name"]: d["spec"]["endpoints"] for d in of_kind("prod+monitoring", "ServiceMonitor")}
    roles = {f"conclave-{role}" for role in SERVICE_ROLES}
    assert monitors.keys() == {*roles, "conclave-etcd"}
    for name in roles:
        (endpoint,) = monitors[name]
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"]["serverName"] == identity_of(name.removeprefix("conclave-"))
        assert "insecureSkipVerify" not in endpoint["tlsConfig"]


def test_prometheus_of_compose_knows_the_jobs_that_alerts_and_dashboards_name() -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    jobs = {job["job_name"] for job in config["scrape_configs"]}
    texts = [alert["expr"] for alert in alerts()]
    texts += [t["expr"] for path in DASHBOARDS for p in json.loads(path.read_text())["panels"] for t in p["targets"]]
    named = {job for text in texts for job in re.findall(r'job="([^"]+)"', text)}
    assert named <= jobs
    for job in config["scrape_configs"]:
        if job["job_name"] != "conclave-etcd":
            assert job["authorization"]["credentials_file"] == "/secrets/metrics-token"


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH")
def test_promtool_takes_rules_configuration_and_every_query(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    rules = tmp_path / "alerts.yaml"
    rules.write_text((MONITORING / "alerts.yaml").read_text())
    subprocess.run([PROMTOOL, "check", "rules", str(rules)], check=True, capture_output=True)
    config = (MONITORING / "prometheus.yaml").read_text()
    token = tmp_path / "token"
    token.write_text("t")
    config = config.replace("/etc/prometheus/alerts.yaml", str(rules)).replace("/secrets/metrics-token", str(token))
    (tmp_path / "prometheus.yaml").write_text(config)
    subprocess.run([PROMTOOL, "check", "config", str(tmp_path / "prometheus.yaml")], check=True, capture_output=True)
    # the queries of the dashboards, as rules: the same parser reads them
    queries = [t["expr"] for path in DASHBOARDS for p in json.loads(path.read_text())["panels"] for t in p["targets"]]
    asked = [{"record": f"q:{n}", "expr": q.replace("$__rate_interval", "1m")} for n, q in enumerate(queries)]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": asked}]}))
    subprocess.run([PROMTOOL, "check", "rules", str(tmp_path / "queries.yaml")], check=True, capture_output=True)
