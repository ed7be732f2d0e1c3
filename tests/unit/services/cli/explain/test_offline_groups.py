"""``conclave explain job/NAME --kubeconfig``: what may not be read is told, and never taken for what is not there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from services.cli.explain.offline_groups import group_answer, job_answer
from shared.errors import ConfigError, KubeError, KubeRejected, KubeUnknown
from shared.kube.resources import Resource
from tests.builders import make_node, make_pod
from tests.fake_kube import AsyncKube, FakeKube

JOB = {
    "metadata": {"name": "train", "namespace": "default", "uid": "j"},
    "spec": {"completionMode": "Indexed", "parallelism": 2, "completions": 2},
}
GANGS = {"metadata": {"name": "default", "annotations": {"conclave.io/gang": "true"}}}


@dataclass
class Cluster:
    """A node and one pod of a Job, which is a gang by its namespace's annotation. ``errors``: by kind's plural."""

    errors: dict[str, KubeError] = field(default_factory=dict)

    def api(self) -> Any:
        server = FakeKube()
        server.add_node(make_node("n"))
        pod = make_pod("train-0").cpu("64")
        owner = {"kind": "Job", "name": "train", "uid": "j", "controller": True, "apiVersion": "batch/v1"}
        pod.json["metadata"]["ownerReferences"] = [owner]
        server.add_pod(pod)
        return _Served(server, self.errors)


class _Served(AsyncKube):
    def __init__(self, server: FakeKube, errors: dict[str, KubeError]) -> None:
        super().__init__(server)
        self._errors = errors

    async def get(self, resource: Resource[Any], *, namespace: str, name: str, timeout_s: float = 5.0) -> Any:
        if resource.plural in self._errors:
            raise self._errors[resource.plural]
        item = {"jobs": JOB, "namespaces": GANGS}.get(resource.plural)
        if item is not None:
            return msgspec.convert(item, resource.type)
        return await super().get(resource, namespace=namespace, name=name) if resource.plural == "pods" else None


def refused(status: int = 403) -> KubeRejected:
    return KubeRejected("forbidden to read it", status=status)


async def test_a_job_is_a_gang_by_its_namespaces_annotation() -> None:
    count, found = await job_answer(Cluster().api(), "default", "train")
    assert found is not None
    assert (count, found["unit"], found["missing"]) == (0, "default/train", [])


@pytest.mark.parametrize(("kind", "told"), [("namespaces", "namespaces"), ("jobs", "jobs.batch")])
async def test_what_may_not_be_read_of_a_job_is_told_beside_its_pods_answer(kind: str, told: str) -> None:
    count, found = await job_answer(Cluster({kind: refused()}).api(), "default", "train")
    assert found is not None
    assert (count, found["pod"], found["missing"]) == (1, "default/train-0", [f"{told} (forbidden to read it)"])


@pytest.mark.parametrize("kind", ["namespaces", "jobs"])
@pytest.mark.parametrize("error", [KubeUnknown("timed out"), refused(500)])
async def test_what_the_server_does_not_say_is_no_answer(kind: str, error: KubeError) -> None:
    with pytest.raises(ConfigError, match="default"):
        await job_answer(Cluster({kind: error}).api(), "default", "train")


async def test_a_namespace_that_is_gone_has_no_annotations() -> None:
    count, found = await job_answer(Cluster({"namespaces": refused(404)}).api(), "default", "train")
    assert found is not None
    assert (count, found["missing"]) == (1, [])


async def test_a_group_that_may_not_be_read_is_not_said_to_be_missing() -> None:
    assert await group_answer(Cluster({"jobs": refused(404)}).api(), "default", "other") is None
    with pytest.raises(ConfigError, match=r"jobs.batch \(forbidden to read it\)"):
        await group_answer(Cluster({"jobs": refused()}).api(), "default", "other")
