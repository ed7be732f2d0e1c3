"""The official Python client (synchronous) works against the twin unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.twin_process import RunningTwin, running_twin

pytestmark = [
    pytest.mark.process,
    # The library's own, on import and in its models.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    with running_twin(tmp_path_factory.mktemp("twin"), scheme="https") as server:
        yield server


@pytest.fixture(scope="module")
def api(twin: RunningTwin) -> Iterator[Any]:
    from kubernetes import client, config

    configuration = client.Configuration()
    config.load_kube_config(str(twin.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as connection:
        yield connection


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "pause"}], "terminationGracePeriodSeconds": 0},
    }


def test_create_list_patch_and_delete_pods(api: Any) -> None:
    from kubernetes import client

    core = client.CoreV1Api(api)
    created = core.create_namespaced_pod("default", pod("a"))
    assert created.spec.scheduler_name == "default-scheduler"
    assert [one.metadata.name for one in core.list_namespaced_pod("default", label_selector="app=x").items] == ["a"]
    core.patch_namespaced_pod("a", "default", {"metadata": {"labels": {"y": "z"}}})
    assert core.read_namespaced_pod("a", "default").metadata.labels == {"app": "x", "y": "z"}
    core.delete_namespaced_pod("a", "default")
    assert core.list_namespaced_pod("default", field_selector="metadata.name=a").items == []


def test_stale_write_is_a_conflict(api: Any) -> None:
    from kubernetes import client

    core = client.CoreV1Api(api)
    core.create_namespaced_config_map("default", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    stale = core.read_namespaced_config_map("c", "default")
    core.patch_namespaced_config_map("c", "default", {"data": {"a": "2"}})
    stale.data = {"a": "3"}
    with pytest.raises(client.ApiException) as refused:
        core.replace_namespaced_config_map("c", "default", stale)
    assert refused.value.status == 409


def test_watch_sees_a_binding(api: Any) -> None:
    from kubernetes import client, watch

    core = client.CoreV1Api(api)
    created = core.create_namespaced_pod("default", pod("bound"))
    binding = {"metadata": {"name": "bound"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}
    # The answer of a Binding is a Status, which the client's typed call cannot read.
    core.create_namespaced_binding("default", binding, _preload_content=False)
    stream = watch.Watch().stream(
        core.list_namespaced_pod,
        "default",
        resource_version=created.metadata.resource_version,
        field_selector="metadata.name=bound",
        timeout_seconds=5,
    )
    event = next(iter(stream))
    assert event["type"] == "MODIFIED"
    assert event["object"].spec.node_name == "n1"


def test_custom_resources(api: Any) -> None:
    from kubernetes import client

    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gangs.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "gangs", "kind": "Gang"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                }
            ],
        },
    }
    client.ApiextensionsV1Api(api).create_custom_resource_definition(definition)
    custom = client.CustomObjectsApi(api)
    gang = {"apiVersion": "example.com/v1", "kind": "Gang", "metadata": {"name": "g"}, "spec": {"minMember": 2}}
    custom.create_namespaced_custom_object("example.com", "v1", "default", "gangs", gang)
    listed = custom.list_namespaced_custom_object("example.com", "v1", "default", "gangs")
    assert [one["spec"]["minMember"] for one in listed["items"]] == [2]


def test_version_and_leases(api: Any) -> None:
    from kubernetes import client

    assert client.VersionApi(api).get_code().minor == "36"
    leases = client.CoordinationV1Api(api)
    leases.create_namespaced_lease("default", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})
    assert leases.read_namespaced_lease("l", "default").spec.holder_identity == "me"
