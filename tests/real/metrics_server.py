"""A metrics.k8s.io for tests, as an aggregated API of the plane: every running pod uses what a test, or the pod, says.

The APIService leads to a Service of type ExternalName, so that the API server finds a listener on loopback. What a pod
says is its annotation ``conclave.io/usage``, which the twin reads too; here its first step holds for ever.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.certificates import TestCa
from tests.real.conftest import RunningPlane

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
RESOURCES = {
    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [
        {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]},
        {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "NodeMetrics", "verbs": ["get", "list"]},
    ],
}  # fmt: skip


USAGE = "conclave.io/usage"
SYSTEM = (100, 2**28)
"""Milli-cores and bytes that every node uses beside its pods."""


class MetricsServer:
    """``usage``: by container's name, what each container of that name uses, where its pod says nothing; one that is
    not named has no entry."""

    def __init__(self, plane: RunningPlane) -> None:
        self.usage: Mapping[str, Mapping[str, str]] = {}
        self._plane = plane
        self._client = ssl.create_default_context(cafile=plane.ca)

    def answer(self, path: str) -> dict[str, Any] | None:
        """The body for a path; None: there is no such path. The API server itself picks pods by the query's labels."""
        path, _, query = path.partition("?")
        parts = path.strip("/").split("/")
        if parts == ["apis", GROUP, VERSION]:
            return RESOURCES
        if parts[:4] == ["apis", GROUP, VERSION, "namespaces"] and parts[5:] == ["pods"]:
            items = [one for pod in self._pods(parts[4], query) if (one := self._metrics(pod)) is not None]
            return {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
        if parts[3:] == ["pods"]:
            items = [one for pod in self._read("pods", query) if (one := self._metrics(pod)) is not None]
            return {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
        if parts[3:] == ["nodes"]:
            items = self._of_nodes()
            return {"kind": "NodeMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
        return None

    def _of_nodes(self) -> list[dict[str, Any]]:
        """What pods that say so use, and ``SYSTEM`` beside them."""
        used = {node["metadata"]["name"]: list(SYSTEM) for node in self._read("nodes", "")}
        for pod in self._read("pods", ""):
            node, told = pod["spec"].get("nodeName"), pod["metadata"].get("annotations", {}).get(USAGE)
            if told is not None and node in used and pod["status"].get("phase") == "Running":
                _, millicores, amount, *_ = json.loads(told)["u"][0]
                used[node][0] += millicores
                used[node][1] += amount
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return [
            {"metadata": {"name": name}, "timestamp": time, "window": "1s",
             "usage": {"cpu": f"{cpu}m", "memory": str(memory)}}
            for name, (cpu, memory) in used.items()
        ]  # fmt: skip

    def _pods(self, namespace: str, query: str) -> list[dict[str, Any]]:
        return self._read(f"namespaces/{namespace}/pods", query)

    def _read(self, path: str, query: str) -> list[dict[str, Any]]:
        asked = urllib.request.Request(
            f"{self._plane.url}/api/v1/{path}?{query}",
            headers={"Authorization": f"Bearer {self._plane.token}"},
        )
        with urllib.request.urlopen(asked, context=self._client, timeout=10) as found:
            items: list[dict[str, Any]] = json.load(found)["items"]
        return items

    def _metrics(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        spec = pod["spec"]
        sidecars = [one for one in spec.get("initContainers", ()) if one.get("restartPolicy") == "Always"]
        usage = _said(pod) or self.usage
        names = [one["name"] for one in (*spec["containers"], *sidecars) if one["name"] in usage]
        if pod["status"].get("phase") != "Running" or not names:
            return None
        return {
            "metadata": {key: pod["metadata"].get(key) for key in ("name", "namespace", "labels")},
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "window": "1s",
            "containers": [{"name": name, "usage": dict(usage[name])} for name in names],
        }


def _said(pod: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What the pod's annotation says of its first container."""
    told = pod["metadata"].get("annotations", {}).get(USAGE)
    if told is None:
        return {}
    _, millicores, amount, *_ = json.loads(told)["u"][0]
    return {pod["spec"]["containers"][0]["name"]: {"cpu": f"{millicores}m", "memory": str(amount)}}


class _Listener(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that hangs up: the API server does where its own client has gone."""
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def metrics_server(plane: RunningPlane, folder: Path) -> Iterator[MetricsServer]:
    """One that serves, and is known to the plane; leaving takes both away."""
    server = MetricsServer(plane)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = server.answer(self.path)
            body = json.dumps(found or {"kind": "Status", "apiVersion": "v1", "code": 404}).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Nothing: the API server's own log has the requests."""

    listener = _Listener(("127.0.0.1", 0), Handler)
    inbound = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inbound.load_cert_chain(*TestCa().issue(folder, "localhost", "localhost"))
    listener.socket = inbound.wrap_socket(listener.socket, server_side=True)
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    port = listener.server_address[1]
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "test-metrics", "namespace": "kube-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    }  # fmt: skip
    registered = {
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP, "version": VERSION, "insecureSkipTLSVerify": True, "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": "test-metrics", "namespace": "kube-system", "port": port},
        },
    }  # fmt: skip
    try:
        for document in (service, registered):
            plane.kubectl("apply", "--validate=false", "-f", "-", stdin=json.dumps(document))
        plane.kubectl("wait", "--for=condition=Available", f"apiservice/{VERSION}.{GROUP}", "--timeout=60s")
        yield server
    finally:
        plane.kubectl("delete", f"apiservice/{VERSION}.{GROUP}", "--ignore-not-found")
        plane.kubectl("delete", "service/test-metrics", "-n", "kube-system", "--ignore-not-found")
        listener.shutdown()
        listener.server_close()
        thread.join()
