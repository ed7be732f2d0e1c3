"""A real kube-apiserver answers writes of classes, claims and slices of devices as the unit test of the twin says."""

from __future__ import annotations

import json
import os
import ssl
from pathlib import Path
from typing import Any

import aiohttp

from tests.real.conftest import RunningPlane
from tests.unit.twin.kinds.device_cases import CLAIM, RULE, TEMPLATE, Write, cases, merged, told

Json = dict[str, Any]
ANSWERS = Path(__file__).parents[1] / "unit" / "twin" / "kinds" / "device_answers.json"
GROUP = "/apis/resource.k8s.io"


def path_of(plural: str, namespace: str) -> str:
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
        async with session.delete(one):
            pass
    return last


async def test_a_real_server_answers_writes_of_devices_as_recorded(plane: RunningPlane) -> None:
    context = ssl.create_default_context(cafile=plane.ca)
    async with aiohttp.ClientSession(
        plane.url, headers={"Authorization": f"Bearer {plane.token}"}, connector=aiohttp.TCPConnector(ssl=context)
    ) as session:
        found = {name: await answer(session, "default", writes) for name, writes in cases().items()}
    if os.environ.get("RECORD_DEVICE_ANSWERS"):
        lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()]
        ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    recorded = json.loads(ANSWERS.read_text())
    assert {name: one for name, one in found.items() if recorded.get(name) != one} == {}
    assert found.keys() == recorded.keys()
