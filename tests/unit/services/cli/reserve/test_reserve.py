"""``conclave reserve``: what it makes of options, and what it refuses before anything is asked."""

from __future__ import annotations

import pytest

from services.cli.reserve.command import whom
from services.cli.reserve.spec import amounts_of, selector_of, spec_of, workload_of
from shared.errors import ConfigError
from shared.kube.objects import OwnerReference


def test_a_workloads_template_is_the_shape_and_it_the_owner() -> None:
    workload = workload_of("deploy/web")
    assert workload.path("shop") == "/apis/apps/v1/namespaces/shop/deployments/web"
    assert workload.reference({"metadata": {"uid": "u"}}) == OwnerReference("apps/v1", "Deployment", "web", "u")
    template = {"spec": {"containers": [{"name": "c"}]}}
    spec = spec_of(
        workload=workload, template=template, amounts={}, selector="", pod="", nodes=("n1",), node_selector="disk=ssd",
        ttl_s=90.0, priority=3, shared=True,
    )  # fmt: skip
    assert spec == {
        "owners": [{"controller": {"kind": "Deployment", "name": "web"}}],
        "ttlSeconds": 90, "priority": 3, "allocateOnce": False, "template": template,
        "nodes": {
            "names": ["n1"],
            "selector": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
        },
    }  # fmt: skip
    assert whom({"spec": spec}) == "Deployment/web"


def test_amounts_go_before_the_template() -> None:
    assert amounts_of("2", "", ("nvidia.com/gpu=1",)) == {"cpu": "2", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize("text", ["web", "deployment/", "pod/web", "/web"])
def test_what_is_no_workload_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write KIND/NAME"):
        workload_of(text)


@pytest.mark.parametrize("text", ["", "a in", "a gt 3"])
def test_a_selector_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--selector"):
        selector_of("--selector", text)


@pytest.mark.parametrize(
    ("changed", "says"),
    [({"pod": ""}, "for whom"), ({"amounts": {}}, "how much")],
)
def test_what_is_missing_is_asked_for(changed: dict[str, object], says: str) -> None:
    given: dict[str, object] = {
        "workload": None, "template": None, "amounts": {"cpu": "1"}, "selector": "", "pod": "web-0", "nodes": (),
        "node_selector": "", "ttl_s": 60.0, "priority": 0, "shared": False,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=says):
        spec_of(**{**given, **changed})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="NAME=AMOUNT"):
        amounts_of("", "", ("gpu",))
