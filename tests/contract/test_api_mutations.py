"""No request, however odd, is answered with a bug: mutated requests of the recordings, by seed.

A 500 is fine where the real server gives one (its texts are Go's); an exception's name in it is a bug of ours.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from random import Random
from typing import Any

import aiohttp
import pytest

from tests.process.twin_process import SHARED, TOKEN, RunningTwin, running_twin

pytestmark = pytest.mark.process

TRANSCRIPTS = SHARED / "api-transcripts" / "transcripts"
REQUESTS = int(os.environ.get("CONCLAVE_MUTATIONS", "1500"))
ODD: list[Any] = [None, True, 0, -1, 1.5, "", "x", [], {}, [1], {"a": 1}, {"a": None}, "1x", 10**20, [None], [[]], [{}]]
ODD_VALUES = ["x", "-1", "", "9" * 21, "a,b", "a=b", "%", "("]
WAITING = ("watch", "timeoutSeconds", "resourceVersion", "resourceVersionMatch")

if not TRANSCRIPTS.exists():
    pytest.skip(f"no transcripts: {TRANSCRIPTS} is missing (CONCLAVE_SHARED names the folder)", allow_module_level=True)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    with running_twin(tmp_path_factory.mktemp("twin")) as server:
        yield server


def recorded_requests() -> list[dict[str, Any]]:
    found = []
    for file in sorted(TRANSCRIPTS.glob("*.json")):
        scenario = json.loads(file.read_text())
        found += [step["request"] for step in scenario["setup"] + scenario["steps"] if "request" in step]
    return [one for one in found if "/watch/" not in one["path"]]


def mutate(value: Any, rng: Random) -> Any:
    if rng.random() < 0.12:
        return copy.deepcopy(rng.choice(ODD))
    if isinstance(value, dict):
        out = {key: mutate(child, rng) for key, child in value.items()}
        if out and rng.random() < 0.1:
            out.pop(rng.choice(list(out)))
        return out
    return [mutate(child, rng) for child in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_mutated_requests_meet_no_bug(twin: RunningTwin, seed: int) -> None:
    rng, requests = Random(seed), recorded_requests()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.post(f"{twin.url}/api/v1/namespaces", json={"metadata": {"name": "odd"}}):
            pass
        for _ in range(REQUESTS):
            request = rng.choice(requests)
            query = {key: str(value) for key, value in (request.get("query") or {}).items() if key not in WAITING}
            if query and rng.random() < 0.2:
                query[rng.choice(sorted(query))] = rng.choice(ODD_VALUES)
            sent = {"Content-Type": (request.get("headers") or {}).get("content-type", "application/json")}
            if rng.random() < 0.1:
                sent["Accept"] = "application/json;as=Table;v=v1;g=meta.k8s.io"
            body = json.dumps(mutate(request["body"], rng)).replace("$ns", "odd") if "body" in request else None
            url = twin.url + request["path"].replace("$ns", "odd")
            async with session.request(request["method"], url, params=query, data=body, headers=sent) as answer:
                text = await answer.text()
                assert answer.status != 500 or "Error: " not in text, (request["method"], url, query, body, text)
