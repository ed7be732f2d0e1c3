"""The component ``sensors`` as it is applied: its objects, its rights, its settings, against an API server that checks.

The coordinator has its service account's token and nothing else; sensors are started with the arguments of the
DaemonSet, but for addresses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.sensor.settings import SensorSettings
from tests.manifests.rendering import NAMESPACE, folder_of, pod_templates
from tests.manifests.test_pod_settings import all_told, environ_of, expand
from tests.process.mesh import Mesh
from tests.process.sensors import at, start
from tests.process.test_rbac_of_a_run import account_kubeconfig, apply
from tests.process.test_sensors import TARGETS, target, until
from tests.scenarios.world import World

pytestmark = [pytest.mark.process, pytest.mark.etcd]

BUILD = "partition-agents"
POLICY = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies/sensor-targets"


async def test_applied_sensors_are_heard_and_let_out_to_targets_alone(tmp_path: Path) -> None:
    twin = ["--kubeconfig-scheme", "https", "--simulate"]
    async with Mesh(tmp_path, coordinators=0, agents=0, binders=0, twin_flags=twin) as mesh:
        await apply(mesh, "-k", str(folder_of(BUILD)))
        world = World(mesh)
        await world.add_node("n0")
        daemons = await world.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets")
        assert [one["metadata"]["name"] for one in daemons["items"]] == ["conclave-sensor"]
        egress = all_told(BUILD)["coordinator"].target_egress
        account = await account_kubeconfig(world, "coordinator")
        mesh._flags["coordinator"] = ["--kubeconfig", str(account), "--target-egress", egress]
        await mesh.add("coordinator", 0)

        async def ways() -> list[Any] | None:
            return (await world.call("GET", POLICY))["spec"].get("egress")

        shop = target("shop", 9)
        shop["spec"]["host"] = "192.0.2.7"
        await mesh.create(TARGETS, shop)
        link = target("link", 80)
        link["spec"]["host"] = "169.254.169.254"
        await mesh.create(TARGETS, link)
        opened = [{"to": [{"ipBlock": {"cidr": "192.0.2.7/32"}}], "ports": [{"protocol": "TCP", "port": 9}]}]
        assert await until(ways, lambda found: found == opened)
        # applied again, as an upgrade does: what the leader wrote stays
        await apply(mesh, "-k", str(folder_of(BUILD)))
        assert await ways() == opened

        sensor = await start(*arguments("n0", at(mesh.services["coordinator-0"].url)))
        try:
            await sensor.told("readings_taken")

            async def measured() -> dict[str, Any]:
                told: dict[str, Any] = (await mesh.get("coordinator-0", "/v1/stats"))["coordinator"]
                return told.get("measured", {}).get("n0", {})

            assert await until(measured, bool)
            await world.call("DELETE", f"{TARGETS}/shop")
            await until(ways, lambda found: not found)
        finally:
            assert await sensor.end() == 0


def arguments(node: str, coordinator: str) -> list[str]:
    """The pod's own, with the addresses of this machine, and no token since nobody listens beyond it."""
    (container,) = pod_templates(BUILD)["conclave-sensor"]["spec"]["containers"]
    environ = environ_of(BUILD, container) | {"NODE_NAME": node}
    assert isinstance(all_told(BUILD)["sensor"], SensorSettings)
    words = [expand(word, environ) for word in container["args"]]
    mine = [f"--coordinators={coordinator}", "--probe-listen=127.0.0.1:0", "--sensor-every-s=0.5"]
    return [*(word for word in words if not word.startswith("--token-file")), *mine]
