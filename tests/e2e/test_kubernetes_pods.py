"""Pods of k8s/ as their manifests have them: image, command, settings, user, mounts. Each starts, is ready and leads.

No kubelet is here, so the engine runs their containers beside the twin and etcd of a compose stack, with what the
kubelet would give them: the service account, their names, the readiness probe, another start when one ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.e2e.engine import TAG, build_images, call, composes, missing
from tests.e2e.stack import Stack
from tests.manifests.rendering import needs_kubectl, of_kind, pod_templates
from tests.manifests.test_pod_settings import environ_of, expand

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_kubectl]

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
BUILD = "partition-agents+autoscaler+jobs+learner+shard"
SERVICES = ("agent", "autoscaler", "binder", "binder-1", "coordinator", "jobs", "learner")
LEAD = ("autoscaler", "binder", "binder-1", "coordinator", "jobs")
BOUND_S = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[Stack]:
    if missing():
        pytest.skip(missing())
    assert composes(), "an engine but no docker compose: install docker-compose"
    await build_images()
    async with Stack(composes()[0], start=("etcd", "twin")) as stack:
        await stack.healthy("etcd", "twin")
        async with stack.joined() as cluster:
            for definition in of_kind(BUILD, "CustomResourceDefinition"):
                await cluster.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        try:
            yield stack
        finally:
            for name in stack.containers.keys() - {"etcd", "twin", "secrets"}:
                print(await call("docker", "logs", "--tail", "5", stack.containers[name].id))
                await call("docker", "rm", "--force", stack.containers[name].id)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pods(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what pods mount; every service of the build runs one, with it."""
    folder = tmp_path_factory.mktemp("mounted")
    kubeconfig = yaml.safe_load(await stack.inside("twin", "cat", "/kube/config"))
    files = {
        "account/token": await stack.inside("twin", "cat", "/secrets/twin-token"),
        "account/ca.crt": base64.b64decode(kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]).decode(),
        "peer-token/token": await stack.inside("twin", "cat", "/secrets/peer-token"),
        "admin-token/tokens": await stack.inside("twin", "cat", "/secrets/admin-tokens"),
    }
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o444)
    for service in SERVICES:
        await run(stack, folder, BUILD, service)
    return folder


def mounts(template: dict[str, Any], container: dict[str, Any], folder: Path) -> list[str]:
    """The options for what a container of a pod mounts; a Secret or ConfigMap that is not in ``folder`` is empty."""
    volumes = {volume["name"]: volume for volume in template["spec"].get("volumes", ())}
    options = ["--volume", f"{folder / 'account'}:{ACCOUNT}:ro"]
    for mount in container["volumeMounts"]:
        volume, path = volumes[mount["name"]], mount["mountPath"]
        if "emptyDir" in volume:
            options += ["--tmpfs", f"{path}:mode=1777"]
        elif "hostPath" in volume:
            options += ["--volume", f"{volume['hostPath']['path']}:{path}:ro"]
        else:
            (folder / mount["name"]).mkdir(exist_ok=True)
            options += ["--volume", f"{folder / mount['name']}:{path}:ro"]
    return options


async def run(stack: Stack, folder: Path, build: str, service: str) -> None:
    """Start the pod of a service as ``build`` has it; the stack follows it under its service's name."""
    template = pod_templates(build)[f"conclave-{service}"]
    (container,) = template["spec"]["containers"]
    name = f"{stack.project}-{service}"
    environ = environ_of(build, container)
    environ |= {key: name for key in ("POD_IP", "POD_NAME") if key in environ}
    environ |= {"KUBERNETES_SERVICE_HOST": "twin", "KUBERNETES_SERVICE_PORT": "8080", "CONCLAVE_ETCD_UNSAFE": "warn"}
    words = [expand(word, environ) for word in (*container["command"], *container["args"])]
    labels = {"com.docker.compose.project": stack.project, "com.docker.compose.service": service}
    ready = container["readinessProbe"]["httpGet"]["path"]
    user = template["spec"]["securityContext"]
    await call(
        "docker", "run", "--detach", "--restart", "unless-stopped", "--name", name,
        "--network", f"{stack.project}_mesh",
        "--add-host", f"conclave-etcd.conclave-system.svc:{await stack.address('etcd')}",
        *(word for item in labels.items() for word in ("--label", "=".join(item))),
        *(word for item in environ.items() for word in ("--env", "=".join(item))),
        "--user", f"{user['runAsUser']}:{user['runAsGroup']}", "--read-only", "--cap-drop", "ALL",
        "--security-opt", "no-new-privileges", *mounts(template, container, folder),
        "--health-cmd", f"healthcheck 8700 {ready}", "--health-interval", "1s",
        f"{container['image'].split(':')[0]}:{TAG}", *words,
    )  # fmt: skip


async def logged(stack: Stack, service: str, event: str) -> dict[str, Any]:
    """The first line of a service's log with this event, as soon as it is there."""
    command = ("docker", "logs", "--follow", stack.containers[service].id)
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=asyncio.subprocess.STDOUT)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND_S):
            async for line in process.stdout:
                if line.startswith(b"{") and json.loads(line)["event"] == event:
                    found: dict[str, Any] = json.loads(line)
                    return found
        raise AssertionError(f"{service} ended without {event}")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_every_service_of_the_components_is_ready_from_its_own_image(stack: Stack, pods: Path) -> None:
    await stack.healthy(*SERVICES)


@pytest.mark.parametrize("service", LEAD)
async def test_what_can_lead_does(stack: Stack, pods: Path, service: str) -> None:
    await logged(stack, service, "leader_elected")


async def test_pods_are_bound_by_what_the_manifests_run(stack: Stack, pods: Path) -> None:
    async with stack.joined() as cluster:
        await cluster.add_node("n0")
        await cluster.add_pod("first")
        await cluster.until(lambda c: c.bound("first"), within_s=BOUND_S, what="a pod is bound")


async def test_an_agent_reads_its_nodes_proc_and_sys_where_the_component_mounts_them(stack: Stack, pods: Path) -> None:
    alone = stack.containers["agent"]
    await call("docker", "rm", "--force", alone.id)
    await stack.until(lambda: not alone.running, what="the agent without them has ended")
    await run(stack, pods, "daemonset-agents+agents-host-sensors", "agent")
    await stack.healthy("agent")


async def test_a_service_that_its_image_has_not_is_not_ready(stack: Stack) -> None:
    """What the checks above rest on: the binder's image cannot run the jobs service."""
    words = ("docker", "run", "--rm", "--network", "none", f"conclave-binder:{TAG}", "conclave", "run", "jobs")
    with pytest.raises(AssertionError, match=r"No module named services\.jobs"):
        await call(*words)
