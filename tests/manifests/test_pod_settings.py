"""Pods and containers start services with settings that exist: the services' own settings code reads them.

What the kubelet or compose would put into the environment and on the command line goes through
``shared.runtime.process.settings.load``, so a misspelt variable, a flag of another service or a path without its
partner is found here, not in a crash loop.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from functools import cache
from typing import Any

import pytest

from services.agent.settings import AgentSettings
from services.autoscaler.settings import AutoscalerSettings
from services.binder.settings import BinderSettings
from services.coordinator.settings import CoordinatorSettings
from services.jobs.settings import JobsSettings
from services.rebalancer.settings import RebalancerSettings
from services.sensor.settings import SensorSettings
from shared.errors import ConfigError
from shared.hostport import EVERY_HOST, split_host_port
from shared.runtime.process.process import ProcessSettings
from shared.runtime.process.settings import load, parse_flags
from tests.manifests.rendering import BUILDS, MUTUAL_TLS, Json, needs_kubectl, of_kind, pod_templates, role_of, tree
from tests.manifests.test_compose import FILES, merged

KINDS: dict[str, type[Any]] = {
    "agent": AgentSettings,
    "autoscaler": AutoscalerSettings,
    "binder": BinderSettings,
    "coordinator": CoordinatorSettings,
    "jobs": JobsSettings,
    "rebalancer": RebalancerSettings,
    "sensor": SensorSettings,
}
if importlib.util.find_spec("lab.serve.settings") is not None:
    KINDS["learner"] = importlib.import_module("lab.serve.settings").LearnerSettings


def settings_of(command: list[str], environ: dict[str, str]) -> tuple[str, Any]:
    """The service that ``conclave run SERVICE FLAGS`` starts, and its settings. ``ConfigError``: it would not start."""
    assert command[:2] == ["conclave", "run"], command
    service = command[2]
    flags, file = parse_flags(KINDS[service], command[3:])
    assert file is None
    return service, load(KINDS[service], service=service, environ=environ, flags=flags)


def environ_of(build: str, container: Json, pod_ip: str = "10.0.0.7") -> dict[str, str]:
    """The container's variables; what the kubelet fills in is made up."""
    maps = {d["metadata"]["name"]: d.get("data", {}) for d in of_kind(build, "ConfigMap")}
    environ: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        environ |= maps[source["configMapRef"]["name"]]
    filled = {"metadata.name": "pod-1", "status.podIP": pod_ip, "spec.nodeName": "node-1"}
    for variable in container.get("env", ()):
        source = variable["valueFrom"]
        key = source.get("configMapKeyRef")
        environ[variable["name"]] = (
            maps[key["name"]][key["key"]] if key is not None else filled[source["fieldRef"]["fieldPath"]]
        )
    return environ


def laid_out(build: str, spec: Json, environ: dict[str, str]) -> dict[str, str]:
    """With the files of mounted ConfigMaps, which settings name and a start reads, where a test can have them."""
    maps = {d["metadata"]["name"]: d.get("data", {}) for d in of_kind(build, "ConfigMap")}
    sources = {volume["name"]: volume["configMap"] for volume in spec["volumes"] if "configMap" in volume}
    mounted = {
        name: maps[source["name"]]
        for name, source in sources.items()
        if source["name"] in maps or not source.get("optional", False)
    }
    for mount in spec["containers"][0]["volumeMounts"]:
        for file, text in mounted.get(mount["name"], {}).items():
            here = tree() / f"{mount['name']}-{file}"
            here.write_text(text)
            path = f"{mount['mountPath']}/{file}"
            environ = {name: str(here) if value == path else value for name, value in environ.items()}
    return environ


def expand(text: str, environ: dict[str, str]) -> str:
    """``$(NAME)`` as the kubelet replaces it."""
    return re.sub(r"\$\((\w+)\)", lambda match: environ[match[1]], text)


def told(build: str, pod_ip: str = "10.0.0.7") -> dict[str, ProcessSettings]:
    """Service to settings, of every pod of ours that is a service and listens to peers."""
    return {name: one for name, one in all_told(build, pod_ip).items() if isinstance(one, ProcessSettings)}


def all_told(build: str, pod_ip: str = "10.0.0.7") -> dict[str, Any]:
    """The same of sensors too."""
    found = {}
    for name, template in pod_templates(build).items():
        container = template["spec"]["containers"][0]
        if container["command"][:2] != ["conclave", "run"]:
            continue
        assert container["image"].split(":")[0] == f"conclave-{role_of(name)}"
        environ = laid_out(build, template["spec"], environ_of(build, container, pod_ip))
        command = [expand(word, environ) for word in (*container["command"], *container["args"])]
        service, settings = settings_of(command, environ)
        found[service] = settings
    return found


@needs_kubectl
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(("pod_ip", "named"), [("10.0.0.7", "10.0.0.7"), ("fd00::7", "[fd00::7]")])
def test_pods_start_with_settings_that_exist_in_clusters_of_either_family(build: str, pod_ip: str, named: str) -> None:
    """``status.podIP`` is without brackets in both; in clusters of both families it is the first one's."""
    services = told(build, pod_ip)
    assert {"coordinator", "agent", "binder"} <= services.keys()
    for service, settings in services.items():
        host, port = split_host_port(settings.listen)
        assert (host, port) == (EVERY_HOST, 8700)
        scheme = "https" if build in MUTUAL_TLS else "http"
        assert settings.advertised(port) == f"{scheme}://{named}:8700"
        assert settings.id == ("node-1" if service == "agent" and build.startswith("daemonset") else "pod-1")


@needs_kubectl
@pytest.mark.parametrize("build", BUILDS)
def test_all_services_use_one_etcd_with_tls_where_it_has_it(build: str) -> None:
    services = told(build)
    endpoints = {settings.etcd for settings in services.values()}
    assert len(endpoints) == 1
    secure = all(endpoint.startswith("https://") for endpoint in endpoints.pop())
    assert secure is not build.startswith(("dev", "partition-agents", "daemonset-agents"))
    templates = pod_templates(build)
    for service, settings in services.items():
        mounts = {m["mountPath"] for m in templates[f"conclave-{service}"]["spec"]["containers"][0]["volumeMounts"]}
        files = (settings.etcd_ca, settings.etcd_cert, settings.etcd_key, settings.token_file)
        peers = (settings.tls_ca, settings.tls_cert, settings.tls_key)
        for file in (*files, *peers):
            assert (file is None) or str(file.parent) in mounts, (service, file)
        assert (settings.etcd_ca is not None) is secure
        assert (None not in peers) is (build in MUTUAL_TLS)


@needs_kubectl
@pytest.mark.parametrize("build", [build for build in BUILDS if "agents-host-sensors" not in build])
def test_a_sensor_is_told_its_node_and_the_coordinators_that_listen(build: str) -> None:
    services, templates = all_told(build), pod_templates(build)
    settings, container = services["sensor"], templates["conclave-sensor"]["spec"]["containers"][0]
    assert isinstance(settings, SensorSettings)
    assert settings.node == "node-1"
    ((host, port),) = [split_host_port(one) for one in settings.coordinators]
    (service,) = [d for d in of_kind(build, "Service") if d["metadata"]["name"] == host.partition(".")[0]]
    assert host == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert service["spec"]["clusterIP"] == "None", "each of them is asked, until one leads"
    assert port == split_host_port(services["coordinator"].listen)[1] == service["spec"]["ports"][0]["port"]
    assert (settings.tls_cert is not None) is (build in MUTUAL_TLS)
    assert (settings.token_file is None) is (build in MUTUAL_TLS), "a certificate is enough"
    held = {
        volume["secret"]["secretName"]
        for volume in templates["conclave-sensor"]["spec"]["volumes"]
        if "secret" in volume
    }
    assert held == {"conclave-peer-sensor-tls" if build in MUTUAL_TLS else "conclave-peer-token"}
    assert settings.sensor_network == ("node" if build == "prod+sensors-host" else "none")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (settings.live_listen, settings.probe_listen) == (f":{ports['live']}", f":{ports['probes']}")
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    for file in (settings.token_file, settings.tls_ca, settings.tls_cert, settings.tls_key):
        assert file is None or str(file.parent) in mounts


@needs_kubectl
def test_an_agent_of_the_daemon_set_serves_its_own_node() -> None:
    settings = told("daemonset-agents")["agent"]
    assert isinstance(settings, AgentSettings)
    assert settings.node == "node-1"


@needs_kubectl
@pytest.mark.parametrize("build", [build for build in BUILDS if "shard" in build])
def test_binders_of_a_further_shard_campaign_for_it(build: str) -> None:
    shards = {}
    for name in ("conclave-binder", "conclave-binder-1"):
        container = pod_templates(build)[name]["spec"]["containers"][0]
        environ = environ_of(build, container)
        command = [expand(word, environ) for word in (*container["command"], *container["args"])]
        _, settings = settings_of(command, environ)
        assert isinstance(settings, BinderSettings)
        shards[name] = settings.shard
    assert shards == {"conclave-binder": "0", "conclave-binder-1": "1"}


@needs_kubectl
def test_every_service_that_judges_has_the_profiles_and_the_right_to_their_leases() -> None:
    services = told("partition-agents+profiles")
    names = [services[service].served().names for service in ("coordinator", "binder", "agent")]
    assert names == [{"web", "batch"}] * 3
    (role,) = [
        one for one in of_kind("partition-agents+profiles", "ClusterRole") if "coordinator" in one["metadata"]["name"]
    ]
    leases = {
        name for rule in role["rules"] if rule["resources"] == ["leases"] for name in rule.get("resourceNames", ())
    }
    assert leases == {"conclave.conclave", "conclave.web", "conclave.batch"}


@needs_kubectl
def test_a_misspelt_setting_is_found() -> None:
    container = pod_templates("dev")["conclave-agent"]["spec"]["containers"][0]
    environ = environ_of("dev", container) | {"CONCLAVE_ETCDD": "x"}
    with pytest.raises(ConfigError, match="CONCLAVE_ETCDD: unknown setting"):
        settings_of(["conclave", "run", "agent"], environ)


@cache
def containers(files: tuple[str, ...]) -> dict[str, Any]:
    return merged(files)["services"]


@pytest.mark.parametrize("files", FILES, ids="+".join)
def test_containers_start_with_settings_that_exist(files: tuple[str, ...]) -> None:
    checked = 0
    for name, service in containers(files).items():
        command = service.get("command", [])
        words = shlex.split(command) if isinstance(command, str) else command
        if words[:2] != ["conclave", "run"] or words[2] not in KINDS:
            continue
        environ = {key: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for key, value in service["environment"].items()}
        _, settings = settings_of(words, environ)
        if isinstance(settings, SensorSettings):
            assert all(split_host_port(one)[0] in containers(files) for one in settings.coordinators)
            continue
        assert settings.id == name
        assert settings.advertised(8700) == f"http://{name}:8700"
        assert all(endpoint.split("//")[1].split(":")[0] in containers(files) for endpoint in settings.etcd)
        checked += 1
    assert checked >= 8


@needs_kubectl
@pytest.mark.parametrize("build", BUILDS)
def test_no_address_of_one_family_alone_is_in_a_pod(build: str) -> None:
    """etcd's 0.0.0.0 is every address of either family: Go listens so (tests/process/test_etcd_of_the_manifests.py)."""
    for name, template in pod_templates(build).items():
        if name == "conclave-etcd":
            continue
        for container in template["spec"]["containers"]:
            told = [*container.get("args", ()), *environ_of(build, container).values()]
            assert not [word for word in told if "0.0.0.0" in word], name
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert "host" not in container.get(probe, {}).get("httpGet", {}), name


@needs_kubectl
@pytest.mark.parametrize("build", BUILDS)
def test_liveness_is_asked_where_a_thread_answers_and_never_of_the_busy_loop(build: str) -> None:
    templates = pod_templates(build)
    for service, settings in told(build).items():
        container = templates[f"conclave-{service}"]["spec"]["containers"][0]
        probe = container["livenessProbe"]
        port = next(p["containerPort"] for p in container["ports"] if p["name"] == probe["httpGet"]["port"])
        assert settings.live_listen == f":{port}"
        assert probe["httpGet"]["path"] == "/livez"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


@needs_kubectl
@pytest.mark.parametrize(("build", "value"), [("partition-agents", "off"), ("partition-agents+lending", "on")])
def test_where_nodes_lend_offline_pods_give_back(build: str, value: str) -> None:
    coordinator = told(build)["coordinator"]
    assert (coordinator.lend, coordinator.offline_eviction) == (value, value)
