"""Every verdict of the real kubelet 1.36 that can be known from the API: would it admit the pod, and in which zones.

The cases are not part of the repository (../shared/oracle-numa). Only ``input`` is shown to us; ``expect`` is compared
afterwards, by the oracle's own rules of judging.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from lab.audit.zone_sums import ZoneSums
from shared.kube import objects as api
from shared.kube.nodes import node_topology as kube
from shared.kube.pods.convert import node_from_api
from shared.kube.pods.convert_requests import effective_requests
from shared.model.node_topology import ContainerSeat, KubeletOptions, MemoryBlock, NodeTopology, PodNeeds
from shared.model.resources import Resources, parse_amount
from shared.scheduling.numa import admission, books, hints, placed
from shared.scheduling.numa.admission import admit
from shared.scheduling.numa.placed import PlacedPod, books_with

SHARED = Path(os.environ.get("CONCLAVE_SHARED", Path(__file__).parents[2].parent / "shared"))
CASES = SHARED / "oracle-numa" / "cases.jsonl"

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=f"the oracle's cases of zones are not at {CASES}")

Case = dict[str, Any]


@pytest.fixture(scope="module")
def corpus() -> list[Case]:
    with CASES.open() as lines:
        return [json.loads(line) for line in lines]


def _pod(raw: Case) -> api.KubePod:
    return msgspec.convert(raw, api.KubePod)


def _topology(node: Case, *, configured: bool) -> NodeTopology:
    item = msgspec.convert(node["nrt"], kube.NodeResourceTopology)
    allocatable = node_from_api(msgspec.convert(node["node"], api.KubeNode)).allocatable
    found = kube.topology_from_api(item).with_node(allocatable)
    return replace(found, options=_options(node["kubelet"])) if configured else found


def _options(kubelet: Case) -> KubeletOptions:
    cpu, machine = kubelet.get("cpuManagerPolicyOptions", {}), kubelet["machine"]
    return KubeletOptions(
        full_pcpus_only=cpu.get("full-pcpus-only") == "true",
        align_by_socket=cpu.get("align-by-socket") == "true",
        prefer_closest=kubelet.get("topologyManagerPolicyOptions", {}).get("prefer-closest-numa-nodes") == "true",
        threads_per_core=machine["threadsPerCore"],
        reserved_siblings=_reserved_siblings(kubelet),
        sockets={zone["id"]: zone["socket"] for zone in machine["zones"]},
    )


def _cpus(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _reserved_siblings(kubelet: Case) -> int:
    reserved, threads, more = set(_cpus(kubelet.get("reservedCPUs", ""))), kubelet["machine"]["threadsPerCore"], 0
    for zone in kubelet["machine"]["zones"]:
        ids = _cpus(zone["cpus"])
        cores = len(ids) // threads
        for core in range(cores):
            siblings = {ids[core + thread * cores] for thread in range(threads)}
            if siblings & reserved:
                more += len(siblings - reserved)
    return more


def _seat(raw: Case) -> ContainerSeat:
    return ContainerSeat(
        cpus={int(zone): count for zone, count in raw.get("cpu", {}).items()},
        memory=tuple(MemoryBlock(one["type"], tuple(one["zones"]), one["bytes"]) for one in raw.get("memory", ())),
        devices={
            name: {int(zone) if zone else None: count for zone, count in by_zone.items()}
            for name, by_zone in raw.get("devices", {}).items()
        },
    )


def _placed(raw: Case) -> PlacedPod:
    seats = None if raw.get("afterNRT") else {name: _seat(one) for name, one in raw.get("containers", {}).items()}
    return PlacedPod(_needs(_pod(raw["pod"])), seats, bool(raw.get("initializing")))


def _needs(pod: api.KubePod) -> PodNeeds:
    """With the containers' own names, by which the cases tell who sits where."""
    names = [one.name for one in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))]
    needs = kube.needs_of(pod.spec) or PodNeeds(())
    return PodNeeds(tuple(structs.replace(one, name=names[int(one.name)]) for one in needs.containers))


def _fits(node: Case, others: list[Case], pod: api.KubePod) -> bool:
    """Node totals, which the scheduler's NodeResourcesFit keeps."""
    status = node["node"]["status"]["allocatable"]
    free = Resources((name, parse_amount(name, text)) for name, text in status.items())
    for other in others:
        free = free.minus(effective_requests(_pod(other["pod"])))
    return len(others) < free.get("pods", 0) and effective_requests(pod).fits_into(free)


def answer(case: Case, *, configured: bool = False) -> dict[str, Any]:
    """As the oracle's check.py wants it."""
    pod = _pod(case["input"]["pod"])
    admitted: dict[str, bool] = {}
    zones: dict[str, dict[str, list[int]]] = {}
    for node in case["input"]["nodes"]:
        name = node["node"]["metadata"]["name"]
        here = [
            one
            for one in case["input"]["placed"]
            if one["node"] == name and one["phase"] not in ("Succeeded", "Failed")
        ]
        admitted[name] = _fits(node, here, pod)
        if "nrt" not in node or not admitted[name]:
            continue
        topology = _topology(node, configured=configured)
        verdict = admit(topology, books_with(topology, map(_placed, here)), _needs(pod))
        admitted[name], zones[name] = verdict.refusal is None, verdict.zones()
    return {"id": case["id"], "admit": admitted, "zones": zones}


def wrong(case: Case, *, configured: bool = False) -> list[str]:
    """What the oracle would not accept."""
    mine, expect, found = answer(case, configured=configured), case["expect"], []
    for node, theirs in expect["admit"].items():
        judge, ours = expect["judge"][node], mine["admit"][node]
        how = judge.get("withConfig", judge["how"]) if configured else judge["how"]
        if (ours and not theirs and how != "either") or (theirs and not ours and how == "exact"):
            found.append(f"{case['id']} {node}: {ours}, the kubelet {expect['reasons'].get(node, 'admits')}")
        seats = expect["zones"].get(node)
        if theirs and ours and seats and any(sorted(mine["zones"][node][one]) != seats[one] for one in seats):
            found.append(f"{case['id']} {node}: in zones {mine['zones'][node]}, the kubelet's {seats}")
    return found


@pytest.mark.parametrize("configured", [False, True])
def test_every_verdict_that_can_be_known_is_the_kubelets(corpus: list[Case], configured: bool) -> None:
    assert [line for case in corpus for line in wrong(case, configured=configured)] == []


def test_the_audits_sums_contradict_no_kubelet_that_let_a_pod_on(corpus: list[Case]) -> None:
    """By code of its own, from what is in the log: it never sees over-commitment there, and most of it elsewhere."""
    seen = refused = 0
    for case in corpus:
        given = case["input"]
        for node in given["nodes"]:
            sums, name = ZoneSums(), node["node"]["metadata"]["name"]
            if node.get("nrt"):
                sums.change("NodeResourceTopology", name, node["nrt"], 0.0)
            there = [one for one in given["placed"] if one["node"] == name and one["phase"] in ("Running", "Pending")]
            for number, one in enumerate(there):
                assert not sums.bound(str(number), one["pod"], name, 10.0 + number, mine=True), case["id"]
            told = sums.bound("new", given["pod"], name, 1000.0, mine=True)
            admitted = case["expect"]["admit"][name]
            assert not (told and admitted), (case["id"], name, told)
            refused, seen = refused + (not admitted), seen + bool(told)
    assert seen > 0.6 * refused


Mistake = tuple[object, str, Callable[..., Any]]

MISTAKES: dict[str, Mistake] = {
    "memory from any zones": (books.Books, "may_lie_in", lambda *_: True),
    "init containers hold nothing": (placed, "_charge_unreported", lambda *_, **__: None),
    "the smallest mask by what is free": (hints.ZoneAmounts, "largest", hints.ZoneAmounts.of),
    "everybody is Guaranteed": (kube, "_guaranteed", lambda _: True),
    "memory without a group": (books.Books, "put_memory", lambda *_: None),
    "the widest mask": (admission, "narrowest", lambda mask: (-mask.bit_count(), -mask)),
    "one mask is enough for one manager": (
        admission,
        "merged",
        lambda policy, all_hints, *others: hints.merged(policy, list(all_hints)[-1:], *others),
    ),
    "init containers pass no CPUs on": (
        admission,
        "countable_hints",
        lambda *given, **_: hints.countable_hints(*given[:3]),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_any_rule_is_seen_by_the_cases(
    corpus: list[Case], monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    of, name, instead = MISTAKES[mistake]
    monkeypatch.setattr(of, name, instead)
    assert any(wrong(case) for case in corpus)
