"""The request log: each combination of user, verb and resource once, refusals included, nothing of objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.twin.twin_scene import Scene
from twin.api.requests.access import Access
from twin.api.requests.paths import parse_path
from twin.registry.access.rbac import Attributes
from twin.registry.status import ApiError
from twin.request_log import RequestLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RequestLog]:
    one = RequestLog(tmp_path / "r")
    yield one
    one.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def entry(user: str, verb: str, resource: str = "", *, path: str = "", allowed: bool) -> dict[str, Any]:
    return {"user": user, "verb": verb, "group": "", "resource": resource, "path": path, "allowed": allowed}


def test_names_and_namespaces_do_not_make_a_new_line(tmp_path: Path, log: RequestLog) -> None:
    for name in ("a", "b"):
        log("u", Attributes("get", "", "pods", name, name), allowed=True)
    log("u", Attributes("get", "", "pods", "n", "a"), allowed=False)
    assert lines(tmp_path / "r") == [entry("u", "get", "pods", allowed=True), entry("u", "get", "pods", allowed=False)]


def test_it_is_bounded(tmp_path: Path, log: RequestLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twin.request_log.LIMIT", 3)
    for number in range(10):
        log("u", Attributes("get", path=f"/{number}"), allowed=False)
    assert len(lines(tmp_path / "r")) == 3


def test_requests_are_named_as_an_authorizer_sees_them(tmp_path: Path, log: RequestLog) -> None:
    scene = Scene()
    access = Access("T", scene.registry, scene.registry.clock, witness=log)
    admin, nobody = access.caller("Bearer T"), access.caller("")
    pods = "/api/v1/namespaces/default/pods"
    for method, path, watch in (
        ("GET", pods, False),
        ("GET", pods, True),
        ("POST", f"{pods}/p/binding", False),
        ("DELETE", f"{pods}/p", False),
        ("GET", "/version", False),
    ):
        access.check(admin, method, path, parse_path(path), watch=watch)
    with pytest.raises(ApiError):
        access.check(nobody, "GET", pods, parse_path(pods), watch=False)
    who = "system:admin"
    assert lines(tmp_path / "r") == [
        entry(who, "list", "pods", allowed=True),
        entry(who, "watch", "pods", allowed=True),
        entry(who, "create", "pods/binding", allowed=True),
        entry(who, "delete", "pods", allowed=True),
        entry(who, "get", path="/version", allowed=True),
        entry("system:anonymous", "list", "pods", allowed=False),
    ]
