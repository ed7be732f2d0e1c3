"""Scaling a job while somebody else writes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from services.cli.jobs import command
from shared.errors import KubeRejected
from shared.kube.training.training_jobs import TrainingJobObject


class Api:
    """An API server with one job. ``meanwhile``: its bounds as somebody else sets them after each look, in turn."""

    def __init__(self, *meanwhile: dict[str, int]) -> None:
        self.workers = {"minimum": 2, "maximum": 4, "requested": 2}
        self.status: dict[str, Any] = {}
        self.revision = 1
        self.meanwhile = list(meanwhile)

    async def get(self, resource: Any, *, namespace: str, name: str) -> TrainingJobObject:
        template = {"spec": {"containers": [{"name": "t", "image": "t"}]}}
        meta = {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": str(self.revision)}
        found = {"metadata": meta, "spec": {"template": template, "workers": dict(self.workers)}, "status": self.status}
        if self.meanwhile:
            self.workers |= self.meanwhile.pop(0)
            self.revision += 1
        return msgspec.convert(found, TrainingJobObject)

    async def patch(self, resource: Any, *, namespace: str, name: str, patch: Any, strategy: str) -> None:
        if patch["metadata"].get("resourceVersion", str(self.revision)) != str(self.revision):
            raise KubeRejected("the object has been modified", status=409, reason="Conflict")
        self.workers |= patch["spec"]["workers"]


def scale(monkeypatch: pytest.MonkeyPatch, api: Api, *args: str) -> Result:
    @asynccontextmanager
    async def client(*_: Any) -> AsyncIterator[Api]:
        yield api

    monkeypatch.setattr(command, "_client", client)
    return CliRunner().invoke(command.jobs, ["scale", "a", *args])


def test_bounds_that_somebody_changes_meanwhile_are_kept(monkeypatch: pytest.MonkeyPatch):
    api = Api({"maximum": 8}, {})
    assert scale(monkeypatch, api, "3").exit_code == 0
    assert api.workers == {"minimum": 2, "maximum": 8, "requested": 3}


def test_a_job_that_changes_at_every_look_is_told_and_left(monkeypatch: pytest.MonkeyPatch):
    api = Api(*({"maximum": number} for number in range(5, 15)))
    result = scale(monkeypatch, api, "3")
    assert "the object has been modified" in str(result.exception)
    assert api.workers["requested"] == 2


def test_fewer_than_it_has_are_no_more_than_that_and_it_is_told(monkeypatch: pytest.MonkeyPatch):
    api = Api({"maximum": 8}, {})
    api.status = {"phase": "Running", "targetWorkers": 8, "startTime": "2026-01-01T00:00:00Z"}
    result = scale(monkeypatch, api, "4")
    assert api.workers == {"minimum": 2, "maximum": 4, "requested": 4}
    assert "its maximum was 8, --maximum 8 lets it grow there again" in result.output
    assert scale(monkeypatch, api, "3", "--maximum", "8").exit_code == 0
    assert api.workers == {"minimum": 2, "maximum": 8, "requested": 3}


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"conditions": [{"type": "WithinQuota", "status": "False", "message": "queue q: 8 of 8"}]}, "queue q: 8 of 8"),
        ({"phase": "Failed"}, "it has ended (Failed)"),
    ],
)
def test_what_stands_against_it_is_told(monkeypatch: pytest.MonkeyPatch, status: dict[str, Any], says: str):
    api = Api()
    api.status = status
    assert says in scale(monkeypatch, api, "4").output
