"""``conclave explain NAMESPACE/POD`` against a running mesh: a pod that fits nowhere, one that was bound, and none."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh
from tests.process.twin_process import TOKEN, RunningTwin, running_twin

pytestmark = [pytest.mark.process, pytest.mark.etcd]


async def explain(*arguments: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "explain", *arguments,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def owned_pod(name: str) -> dict[str, Any]:
    """A pod as the ReplicaSet of the Deployment ``web`` makes it."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8", "uid": "u", "controller": True}
    spec = {"schedulerName": "conclave", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}


def create_pod(twin: RunningTwin, pod: dict[str, Any]) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    url = f"{twin.url}/api/v1/namespaces/default/pods"
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(pod).encode(), headers), timeout=PATIENCE_S).close()


async def test_a_deployment_is_explained_by_the_pod_that_has_waited_longest_where_there_is_no_mesh(
    tmp_path: Path,
) -> None:
    with running_twin(tmp_path) as twin:
        for name in ("web-5d4f8-aaaaa", "web-5d4f8-bbbbb"):
            await asyncio.to_thread(create_pod, twin, owned_pod(name))
        cluster = ["--kubeconfig", str(twin.kubeconfig)]
        code, out, err = await explain("deploy/web", *cluster)
        assert code == 0, err
        head, answer, *_ = out.splitlines()
        assert head == "deployment default/web: 2 pods of it wait; the one that has waited longest:"
        assert answer.startswith("default/web-5d4f8-aaaaa: pending, ")
        code, out, err = await explain("sts/web", *cluster)
        assert (code, out) == (1, "")
        assert "no pod of statefulset default/web waits" in err


async def test_the_mesh_says_why_and_so_do_the_rules_alone_where_there_is_none(tmp_path: Path) -> None:
    token = tmp_path / "admin-token"
    token.touch(mode=0o600)
    token.write_text("a-token-for-this-test viewer ann\n")
    flags = {"coordinator": ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(token)]}
    async with Mesh(tmp_path, coordinators=2, binders=1, flags=flags) as mesh:
        await mesh.add_nodes(2)
        await mesh.add_pod("fits")
        await mesh.add_pod("big", cpu="6")
        await mesh.wait_bound({"fits"})
        asked = ["--server", mesh.services[await mesh.leader()].admin_url, "--token-file", str(token)]

        answer: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE_S):
            while (answer.get("queue") or {}).get("place") != "unschedulable":
                code, out, err = await explain("default/big", *asked, "-o", "json")
                assert code == 0, err
                answer = json.loads(out)
        (group,) = answer["nodes"]["groups"]
        assert (group["plugin"], group["count"]) == ("NodeResourcesFit", 2)
        assert group["nodes"][0]["shortages"][0]["short_by"] >= 2000

        code, out, err = await explain("default/fits", *asked)
        assert code == 0, err
        assert "decided" in out
        assert "placed by policy kube-default@1 " in out

        code, out, err = await explain("default/none", *asked)
        assert (code, out) == (1, "")
        assert err == "conclave: there is no pod default/none: it is gone, or was never created\n"

        cluster = ["--kubeconfig", str(mesh.kubeconfig)]
        code, out, err = await explain("default/big", *cluster, "-o", "json")
        assert (code, err) == (0, "")
        offline = json.loads(out)
        assert (offline["source"], offline["missing"]) == ("api", [])
        for part in ("state", "summary", "condition", "preemption"):
            assert offline[part] == answer[part], part
        assert offline["nodes"]["groups"] == answer["nodes"]["groups"]
        code, out, err = await explain("default/fits", *cluster)
        assert "only the leading coordinator remembers" in out
        code, out, err = await explain("default/none", *cluster)
        assert (code, out) == (1, "")
        assert err == "conclave: there is no pod default/none: it is gone, or was never created\n"
        code, out, err = await explain("default/big", "--kubeconfig", str(tmp_path / "none"))
        assert (code, out, err.count("\n")) == (2, "", 1)

        code, _, err = await explain("default/fits", *asked[:2])
        assert code == 2
        assert "--token-file" in err


async def test_a_gang_is_told_the_same_by_the_mesh_and_by_the_rules_alone(tmp_path: Path) -> None:
    token = tmp_path / "admin-token"
    token.touch(mode=0o600)
    token.write_text("a-token-for-this-test viewer ann\n")
    flags = {"coordinator": ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(token)]}
    async with Mesh(tmp_path, coordinators=1, binders=1, flags=flags) as mesh:
        await mesh.add_nodes(2)
        groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
        for name, least in (("large", 3), ("short", 4)):
            spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
            await mesh.create(groups, {"kind": "PodGroup", "metadata": {"name": name}, "spec": spec})
            for member in range(3):
                await mesh.add_pod(f"{name}-{member}", cpu="3", schedulingGroup={"podGroupName": name})
        asked = ["--server", mesh.services[await mesh.leader()].admin_url, "--token-file", str(token)]
        cluster = ["--kubeconfig", str(mesh.kubeconfig)]
        for name, reason in (("large", "Unschedulable"), ("short", "Incomplete")):
            answer: dict[str, Any] = {}
            async with asyncio.timeout(120):
                while answer.get("reason") != reason:
                    code, out, _ = await explain(f"podgroup/{name}", *asked, "-o", "json")
                    answer = json.loads(out) if code == 0 else {}
            code, out, err = await explain(f"podgroup/{name}", *cluster, "-o", "json")
            assert code == 0, err
            offline = json.loads(out)
            assert (offline["source"], offline["missing"]) == ("api", [])
            for part in ("unit", "phase", "summary", "reason", "message", "now"):
                assert offline[part] == answer[part], part
        code, out, err = await explain("podgroup/none", *cluster)
        assert (code, out) == (1, "")
        assert err == "conclave: there is no pod group default/none, and no pod names it\n"
