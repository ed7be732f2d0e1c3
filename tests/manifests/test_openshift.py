"""The component ``openshift``: pods that OpenShift's SCC restricted-v2 admits, and that still run elsewhere.

``refused`` is that SCC, as ``oc get scc restricted-v2 -o yaml`` has it: MustRunAsRange for users, MustRunAs for groups,
no capability, no host. A pod that names nothing gets the first of its namespace's range.
"""

from __future__ import annotations

import re

import pytest

from tests.manifests.rendering import BUILDS, ROOT, Json, needs_kubectl, pod_templates

RANGE = range(1000710000, 1000720000)
"""``openshift.io/sa.scc.uid-range`` of some namespace; each has its own."""

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


def refused(spec: Json) -> list[str]:
    """Why restricted-v2 does not admit a pod."""
    found = [field for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    pod = spec.get("securityContext", {})
    for where, context in [("pod", pod), *((c["name"], c.get("securityContext", {})) for c in spec["containers"])]:
        chosen = [(field, context[field]) for field in ("runAsUser", "fsGroup") if field in context]
        chosen += [("supplementalGroups", group) for group in context.get("supplementalGroups", ())]
        found += [f"{where}: {field} {number}" for field, number in chosen if number not in RANGE]
        if context.get("seccompProfile", {"type": "RuntimeDefault"}) != {"type": "RuntimeDefault"}:
            found.append(f"{where}: seccompProfile")
    for container in spec["containers"]:
        context = container["securityContext"]
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            found.append(f"{container['name']}: privilege")
        if context.get("capabilities") != {"drop": ["ALL"]}:
            found.append(f"{container['name']}: capabilities")
    return found + [v["name"] for v in spec.get("volumes", ()) if not v.keys() & VOLUMES]


@needs_kubectl
@pytest.mark.parametrize("build", [build for build in BUILDS if "openshift" in build])
def test_restricted_v2_admits_every_pod(build: str) -> None:
    for name, template in pod_templates(build).items():
        assert refused(template["spec"]) == [], name
        assert template["spec"]["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }


@needs_kubectl
def test_without_the_component_it_admits_none() -> None:
    for name, template in pod_templates("prod").items():
        assert "pod: runAsUser 65532" in refused(template["spec"]), name


@needs_kubectl
@pytest.mark.parametrize("build", [build for build in BUILDS if "openshift" in build])
def test_what_a_pod_mounts_is_read_by_the_group_that_it_is_given(build: str) -> None:
    for name, template in pod_templates(build).items():
        for volume in template["spec"].get("volumes", ()):
            if "secret" in volume:
                assert volume["secret"]["defaultMode"] & 0o040, (name, volume["name"])


def test_an_image_runs_as_any_user() -> None:
    """A user that no file names has no home: what is written goes to /tmp, and who asks for a name gets one."""
    runtime = (ROOT / "Dockerfile").read_text().partition(" AS runtime")[2].partition("FROM")[0]
    environ = dict(re.findall(r"(\w+)=(\S+)", runtime))
    assert environ["HOME"] == "/tmp"
    assert environ["LOGNAME"]
    assert "WORKDIR /tmp" in runtime
