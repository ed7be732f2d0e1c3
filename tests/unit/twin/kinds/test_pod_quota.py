"""Quotas count new pods and refuse what would exceed them."""

from __future__ import annotations

from typing import Any

import pytest

from twin.kinds.pod import admission as pod_admission
from twin.registry.status import ApiError

Json = dict[str, Any]


def quota(cluster: Any, *, name: str = "q", spec: Json | None = None, **hard: str) -> None:
    limits = {key.replace("_", "."): value for key, value in hard.items()}
    cluster.create("resourcequotas", {"metadata": {"name": name}, "spec": {"hard": limits, **(spec or {})}})
    used = dict.fromkeys(limits, "0")
    cluster.change_status("resourcequotas", name, lambda obj: obj.update(status={"hard": limits, "used": used}))


def asking(cpu: str) -> Json:
    return {"resources": {"requests": {"cpu": cpu}}}


def test_a_pod_is_counted_with_what_it_asks_for(cluster: Any, make_pod: Any) -> None:
    quota(cluster, pods="2", requests_cpu="1")
    cluster.create("pods", make_pod("a", container=asking("300m")))
    assert cluster.get("resourcequotas", "q")["status"]["used"] == {"pods": "1", "requests.cpu": "300m"}


def test_what_would_exceed_is_refused_and_not_counted(cluster: Any, make_pod: Any) -> None:
    quota(cluster, pods="5", requests_cpu="1")
    cluster.create("pods", make_pod("a", container=asking("600m")))
    text = "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"
    with pytest.raises(ApiError, match=text) as caught:
        cluster.create("pods", make_pod("b", container=asking("600m")))
    assert caught.value.code == 403
    assert cluster.get("resourcequotas", "q")["status"]["used"]["pods"] == "1"


def test_without_the_plugin_the_quota_would_not_hold(
    cluster: Any, make_pod: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation: nothing else counts pods."""
    monkeypatch.setattr(pod_admission, "admit_quota", lambda obj, ctx: None)
    quota(cluster, pods="1")
    cluster.create("pods", make_pod("a"))
    cluster.create("pods", make_pod("b"))
    assert cluster.get("resourcequotas", "q")["status"]["used"] == {"pods": "0"}


def test_a_quota_on_requests_makes_them_mandatory(cluster: Any, make_pod: Any) -> None:
    quota(cluster, requests_cpu="1")
    with pytest.raises(ApiError, match=r"failed quota: q: must specify requests\.cpu for: c"):
        cluster.create("pods", make_pod())


def test_a_dry_run_counts_nothing(cluster: Any, make_pod: Any) -> None:
    quota(cluster, pods="1")
    cluster.create("pods", make_pod(), dry_run=True)
    assert cluster.get("resourcequotas", "q")["status"]["used"] == {"pods": "0"}


def test_a_quota_without_a_status_does_not_hold_yet(cluster: Any, make_pod: Any) -> None:
    cluster.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}})
    cluster.create("pods", make_pod())


@pytest.mark.parametrize(
    ("scope", "counted"),
    [({"scopes": ["BestEffort"]}, "1"), ({"scopes": ["NotBestEffort"]}, "0"), ({"scopes": ["Terminating"]}, "0")],
    ids=str,
)
def test_scopes_narrow_a_quota(cluster: Any, make_pod: Any, scope: Json, counted: str) -> None:
    quota(cluster, spec=scope, pods="5")
    cluster.create("pods", make_pod())
    assert cluster.get("resourcequotas", "q")["status"]["used"] == {"pods": counted}
