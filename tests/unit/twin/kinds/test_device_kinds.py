"""Classes, claims, templates, slices and taint rules of devices: the twin answers as a kube-apiserver 1.36.2 did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.twin.kinds.conftest import Cluster
from tests.unit.twin.kinds.device_cases import Write, cases, merged, told
from twin.registry.status import ApiError

Json = dict[str, Any]
ANSWERS: dict[str, Json] = json.loads((Path(__file__).parent / "device_answers.json").read_text())
CASES = cases()


def answer(cluster: Cluster, writes: list[Write]) -> Json:
    """What becomes of the last of them."""
    last: Json = {}
    for verb, plural, name, body in writes:
        resource = f"{plural}.resource.k8s.io"
        try:
            if verb == "create":
                last = cluster.create(resource, merged({"metadata": {"name": name}}, body))
            else:
                change = cluster.change if verb == "update" else cluster.change_status

                def edit(obj: Json, body: Json = body) -> None:
                    new = merged(obj, body)
                    obj.clear()
                    obj.update(new)

                last = change(resource, name, edit)
        except ApiError as error:
            return told(error.code, error.body)
    return told(201 if writes[-1][0] == "create" else 200, last)


def test_every_case_was_put_to_a_real_server() -> None:
    assert CASES.keys() == ANSWERS.keys()


@pytest.mark.parametrize("name", list(CASES))
def test_a_write_is_answered_as_a_real_server_answers_it(cluster: Cluster, name: str) -> None:
    assert json.loads(json.dumps(answer(cluster, CASES[name]))) == ANSWERS[name]
