"""The audit of reservations: a good history is clean, and every check is seen red on a bad one."""

from __future__ import annotations

from typing import Any

from lab.audit.audit import AuditReport, audit
from lab.audit.log import LogEntry

NODE = {
    "metadata": {"name": "n1", "uid": "node"},
    "spec": {},
    "status": {"allocatable": {"cpu": "4", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
}


class Kept:
    """One node, one Reservation of two cores on it for the Deployment ``web``, and what pods do."""

    def __init__(self, **spec: Any) -> None:
        self.entries: list[LogEntry] = []
        self.put("create", "Node", NODE, "")
        owners = [{"controller": {"kind": "Deployment", "name": "web"}}]
        self.reservation = {
            "metadata": {"name": "launch", "namespace": "shop", "uid": "r"},
            "spec": {"resources": {"cpu": "2"}, "owners": owners, **spec},
            "status": {"phase": "Available", "node": "n1"},
        }
        self.put("create", "Reservation", self.reservation)

    def put(self, verb: str, kind: str, item: dict[str, Any], namespace: str = "shop") -> None:
        meta, rv = item["metadata"], len(self.entries) + 1
        self.entries.append(
            LogEntry(rv, 100.0 * rv, verb, kind, namespace, meta["name"], "mesh", item, "")
        )  # fmt: skip

    def pod(
        self, name: str, owner: str = "", cpu: str = "2", *, takes: str = "", bind: bool = True, before: str = ""
    ) -> Kept:
        meta: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name, "labels": {"pod-template-hash": "5d"}}
        if owner:
            meta["ownerReferences"] = [{"kind": "ReplicaSet", "name": f"{owner}-5d", "controller": True}]
        if before:
            meta["annotations"] = {"conclave.io/reservation": before}
        requests = {"resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "conclave", "containers": [{"name": "c", **requests}]}
        waiting = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1"}]}
        self.put("create", "Pod", {"metadata": meta, "spec": spec, "status": waiting})
        if bind:
            meta = {**meta, **({"annotations": {"conclave.io/reservation": takes}} if takes else {})}
            self.put("bind", "Pod", {"metadata": meta, "spec": {**spec, "nodeName": "n1"}, "status": {}})
        return self

    def report(self) -> AuditReport:
        return audit(self.entries, scheduler_name="conclave")


def test_who_is_meant_takes_it_and_others_stand_beside() -> None:
    report = Kept().pod("other").pod("web-1", "web", takes="r").report()
    assert report.ok, report.examples


def test_a_pod_that_waits_for_kept_room_is_not_lost() -> None:
    report = Kept().pod("other").pod("waits", bind=False).report()
    assert report.ok, report.examples


def test_room_given_to_somebody_else_is_seen() -> None:
    report = Kept().pod("other", cpu="3").report()
    assert report.reserved_wrong == 1
    assert "kept by shop/launch" in report.examples[0]
    assert not report.ok


def test_a_reservation_taken_by_who_is_not_meant_is_seen() -> None:
    assert "kept for others" in Kept().pod("thief", "shop", takes="r").report().examples[0]


def test_a_reservation_for_once_taken_twice_is_seen() -> None:
    report = Kept().pod("web-1", "web", cpu="1", takes="r").pod("web-2", "web", cpu="1", takes="r").report()
    assert "was for once and is taken" in report.examples[0]
    shared = Kept(allocateOnce=False).pod("web-1", "web", cpu="1", takes="r").pod("web-2", "web", cpu="1", takes="r")
    assert shared.report().ok


def test_who_wrote_the_annotation_by_hand_took_nothing() -> None:
    assert Kept().pod("thief", cpu="1", takes="r", before="r").report().reserved_wrong == 0
    assert Kept().pod("thief", cpu="3", takes="r", before="r").report().reserved_wrong == 1
