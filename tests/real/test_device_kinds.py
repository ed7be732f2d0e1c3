"""A real kube-apiserver answers writes of classes, claims and slices of devices as the unit test of the twin says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.real.plane import Plane, PlaneSettings, missing
from tests.unit.twin.kinds.device_bodies import POD, claim, status
from tests.unit.twin.kinds.device_cases import CLAIM, POD_KIND, RULE, TEMPLATE, TOLD, Write, cases, merged, told
from tests.unit.twin.kinds.device_writers import PERMISSIONS, REFUSED, WRITER, causes_of, roles

Json = dict[str, Any]
ANSWERS = Path(__file__).parents[1] / "unit" / "twin" / "kinds" / "device_answers.json"
PATIENCE_S = 20.0
GROUP = "/apis/resource.k8s.io"


def path_of(plural: str, namespace: str) -> str:
    if plural == POD_KIND:
        return f"/api/v1/namespaces/{namespace}/pods"
    version = "v1beta2" if plural == RULE else "v1"
    within = f"/namespaces/{namespace}" if plural in (CLAIM, TEMPLATE) else ""
    return f"{GROUP}/{version}{within}/{plural}"


async def answer(session: aiohttp.ClientSession, namespace: str, writes: list[Write]) -> Json:
    """What becomes of the last of them; everything is deleted again."""
    last: Json = {}
    created: set[str] = set()
    for verb, plural, name, body in writes:
        path = path_of(plural, namespace)
        if verb == "create":
            async with session.post(path, json=merged({"metadata": {"name": name}}, body)) as got:
                last = told(got.status, await got.json())
            created.add(f"{path}/{name}")
            continue
        async with session.get(f"{path}/{name}") as got:
            stored = await got.json()
        where = f"{path}/{name}/status" if verb == "status" else f"{path}/{name}"
        async with session.put(where, json=merged(stored, body)) as got:
            last = told(got.status, await got.json())
    for one in created:
        async with session.delete(f"{one}?gracePeriodSeconds=0"):
            pass
    return last


@pytest.mark.skipif(bool(missing()), reason=missing())
async def test_a_real_server_answers_writes_of_devices_as_recorded(tmp_path: Path) -> None:
    admission = ("--disable-admission-plugins=ServiceAccount",)  # nobody makes the account
    async with Plane(PlaneSettings(tmp_path, server_only=True, extra=admission)) as plane:
        found = {name: await answer(plane.session, "default", writes) for name, writes in cases().items()}
    if os.environ.get("RECORD_DEVICE_ANSWERS"):
        lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()]
        ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    recorded = json.loads(ANSWERS.read_text())
    assert {name: one for name, one in found.items() if recorded.get(name) != one} == {}
    assert found.keys() == recorded.keys()


@pytest.mark.skipif(bool(missing()), reason=missing())
async def test_a_real_server_asks_for_the_permissions_that_the_twin_asks_for(tmp_path: Path) -> None:
    rbac, path = "/apis/rbac.authorization.k8s.io/v1", path_of(CLAIM, "default")
    body = status(reservedFor=[POD], devices=[TOLD])
    found = {}
    async with Plane(PlaneSettings(tmp_path, server_only=True)) as plane:
        assert WRITER == "system:kube-controller-manager"
        headers = {"Authorization": "Bearer token-of-kube-controller-manager"}
        for name, (rules, _) in PERMISSIONS.items():
            role, binding = roles(rules)
            for plural, obj in (("clusterroles", role), ("clusterrolebindings", binding)):
                async with plane.session.put(f"{rbac}/{plural}/writer", json=obj) as got:
                    assert got.status in (200, 201), await got.text()
            async with plane.session.post(path, json=merged({"metadata": {"name": "x"}}, claim())) as got:
                stored = await got.json()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    while found.get(name) != [REFUSED[one] for one in PERMISSIONS[name][1]]:
                        # the authorizer follows a watch
                        put = plane.session.put(f"{path}/x/status", json=merged(stored, body), headers=headers)
                        async with put as got:
                            found[name] = causes_of(await got.json(), "default")
            async with plane.session.delete(f"{path}/x"):
                pass
    assert found == {name: [REFUSED[one] for one in refused] for name, (_, refused) in PERMISSIONS.items()}
