"""What an offline pod says of giving way; what cannot be read counts as not said and is named."""

from __future__ import annotations

from typing import Any

import pytest

from shared.kube.pods.offline_terms import MOST_S
from shared.model.offline import GIVE_WAY, OfflineTerms
from tests.builders import make_pod

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}


def terms(
    *, owner: dict[str, Any] | None = OWNER, labels: dict[str, str] | None = None, **annotations: str
) -> OfflineTerms:
    said = {f"conclave.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    pod = make_pod().set(
        labels=labels or {},
        annotations={"conclave.io/qos": "offline", **said},
        ownerReferences=[] if owner is None else [owner],
    )
    found = pod.pod().offline
    assert found is not None
    return found


def test_an_online_pod_has_none() -> None:
    assert make_pod().set(ownerReferences=[OWNER]).pod().offline is None


@pytest.mark.parametrize(
    ("owner", "preemptible", "label", "returns"),
    [
        (OWNER, None, None, True),
        (None, None, None, False),
        (None, "true", None, True),
        (None, None, "true", True),
        (OWNER, "false", "true", False),
        (OWNER, None, "false", False),
        ({**OWNER, "controller": False}, None, None, False),
        ({**OWNER, "kind": "Node"}, "true", "true", False),
    ],
)
def test_who_may_be_evicted(
    owner: dict[str, Any] | None, preemptible: str | None, label: str | None, returns: bool
) -> None:
    said = {} if preemptible is None else {"preemptible": preemptible}
    labels = {} if label is None else {"koordinator.sh/eviction-enabled": label}
    assert terms(owner=owner, labels=labels, **said).returns is returns


def test_times_are_read_with_their_zone() -> None:
    assert terms(last_checkpoint="1970-01-01T01:00:10+01:00").saved == 10.0
    assert terms(last_checkpoint="1970-01-01T00:00:10.500Z").saved == 10.5


@pytest.mark.parametrize("name", ["restart_seconds", "min_runtime_seconds", "checkpoint_interval_seconds"])
@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1e300", f"{MOST_S + 1}", "1_0h"])
def test_a_number_that_is_none_is_named_and_counts_as_not_said(name: str, text: str) -> None:
    found = terms(**{name: text})  # type: ignore[arg-type]
    assert (found.restart_s, found.min_runtime_s, found.saves_every_s) == (0.0, None, None)
    assert f"metadata.annotations[conclave.io/{name.replace('_', '-')}]: {text!r}" in found.doubt
    assert "seconds from 0" in found.doubt


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-11-29",
        "2026-11-29T01:00:00",
        "0001-01-01T00:00:00Z",
        "9" * 99,
        "9999-12-31T23:59:59-01:00",
        "9999-12-31T23:59:59Z",
    ],
)
def test_a_time_that_is_none_or_has_no_zone_is_named(text: str) -> None:
    found = terms(last_checkpoint=text)
    assert found.saved == 0.0
    assert "is no time; write for instance 2026-11-29T01:00:00Z" in found.doubt


@pytest.mark.parametrize(
    ("status", "reason", "message", "gives_way"),
    [
        ("True", "PreemptionByScheduler", f"conclave: {GIVE_WAY}", True),
        ("True", "PreemptionByScheduler", "conclave: preempting to accommodate a higher priority pod (uid-9)", False),
        ("True", "EvictionByEvictionAPI", f"conclave: {GIVE_WAY}", False),
        ("False", "", "", False),
    ],
)
def test_a_mark_says_for_what_it_leaves(status: str, reason: str, message: str, gives_way: bool) -> None:
    pod = make_pod().set(annotations={"conclave.io/qos": "offline"}, ownerReferences=[OWNER])
    marked = {"type": "DisruptionTarget", "status": status, "reason": reason, "message": message}
    pod.json["status"] = {"conditions": [marked]}
    found = pod.pod().offline
    assert found is not None
    assert found.gives_way is gives_way
