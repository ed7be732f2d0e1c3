"""Which paths there are, which methods they have, and how the others are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.twin.twin_scene import Scene
from twin.api.requests.paths import parse_path
from twin.api.routes import find_kind
from twin.api.server import TwinServer
from twin.registry.status import ApiError

PODS, THINGS = "/api/v1/namespaces/default/pods", "/apis/example.io/v1/namespaces/default/things"
DEFINITION = {
    "group": "example.io",
    "scope": "Namespaced",
    "names": {"plural": "things", "kind": "Thing"},
    "versions": [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
    ],
}


def answered(method: str, path: str) -> int:
    """The code of the refusal; 0 where the path has the method, 404.5 for the text page."""
    scene = Scene()
    scene.create("customresourcedefinitions.apiextensions.k8s.io", "things.example.io", spec=DEFINITION)
    target = parse_path(path)
    assert target is not None
    try:
        kind = find_kind(scene.registry, target, method)
    except ApiError as error:
        return error.code
    return 0 if kind is not None else -404


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (PODS, "GET POST DELETE"),
        (f"{PODS}/a", "GET PUT PATCH DELETE"),
        (f"{PODS}/a/status", "GET PUT PATCH"),
        (f"{PODS}/a/binding", "POST"),
        (f"{PODS}/a/eviction", "POST"),
        (f"{PODS}/a/log", "GET"),
        (f"{PODS}/a/exec", "GET POST"),
        (f"{PODS}/a/proxy/any/path", "GET POST PUT PATCH DELETE HEAD OPTIONS"),
        ("/api/v1/pods", "GET"),
        ("/api/v1/namespaces", "GET POST"),
        ("/api/v1/namespaces/default/finalize", "PUT"),
        ("/api/v1/watch/pods", "GET"),
        ("/api/v1/watch/namespaces/default/pods/a", "GET"),
        ("/api/v1/namespaces/default/bindings", "POST"),
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "POST"),
        ("/apis/apps/v1/namespaces/default/deployments/d/scale", "GET PUT PATCH"),
    ],
)
def test_a_built_in_path_has_these_methods_and_refuses_the_others_by_405(path: str, methods: str) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        assert answered(method, path) == (0 if method in methods.split() else 405), method


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pods/a",
        "/api/v1/bindings",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/watch/namespaces/default/pods/a/status",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/a",
        "/apis/apps/v1/nothings",
        f"{PODS}/a/nothing",
        f"{PODS}/a/status/more",
    ],
)
def test_what_has_no_route_is_404_for_every_method(path: str) -> None:
    assert {answered(method, path) for method in ("GET", "POST", "DELETE", "TRACE")} == {404}


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("DELETE", THINGS, 0),
        ("DELETE", "/apis/example.io/v1/things", -404),
        ("GET", "/apis/example.io/v1/things", 0),
        ("PUT", THINGS, 400),
        ("HEAD", f"{THINGS}/a", 0),
        ("OPTIONS", f"{THINGS}/a", 405),
        ("POST", f"{THINGS}/a/status", 405),
        ("GET", f"{THINGS}/a/scale", 404),
    ],
)
def test_custom_resources_are_asked_by_verb(method: str, path: str, code: int) -> None:
    assert answered(method, path) == code


async def exchange(port: int, request: bytes) -> tuple[str, str]:
    """The status line and the body of a raw request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return head.split("\r\n")[0], body


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("FOO /api/v1/nodes", "405"),
        ("get /api/v1/nodes", "405"),
        ("POST /version", "405"),
        ("DELETE /api", "405"),
        ("PUT /apis/apps/v1", "405"),
        ("POST /apis", "200"),
        ("FOO /healthz", "200"),
        ("GET /version/more", "404"),
    ],
)
async def test_methods_nobody_has_are_answered_by_a_status(line: str, status: str) -> None:
    server = TwinServer(Scene().registry)
    port = await server.start()
    try:
        head: Any
        head, body = await exchange(port, f"{line} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n".encode())
    finally:
        await server.stop()
    assert head.split()[1] == status
    if status == "405":
        assert '"reason":"MethodNotAllowed"' in body
