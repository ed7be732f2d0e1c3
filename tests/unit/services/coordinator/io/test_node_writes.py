"""Closing a node and opening it again: one taint among others' taints, whoever writes them beside us."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from services.coordinator.core.events import Event, NodeHeld
from services.coordinator.core.instructions import HoldNode
from services.coordinator.io.node_writes import IN_FLIGHT, TRIES, NodeWrites, operations
from shared.errors import KubeRejected
from shared.kube.objects import KubeNode
from shared.kube.pods.convert import node_from_api
from shared.model.node import HELD_TAINT, NOT_REMOVED, OUR_ANNOTATIONS
from tests.builders import NodeBuilder, make_node
from twin.patches.json_patch import json_patch
from twin.registry.status import ApiError

OURS = {"key": HELD_TAINT, "effect": "NoSchedule"}


class Api:
    """One node as JSON. ``meanwhile``: taints that somebody writes between our reads and patches."""

    def __init__(self, builder: NodeBuilder | None, *meanwhile: list[dict[str, str]], refuse: int = 0) -> None:
        self.builder = builder
        self.meanwhile = list(meanwhile)
        self.refuse = refuse
        self.patches = 0

    async def get(self, *_: Any, **__: Any) -> KubeNode | None:
        return None if self.builder is None else self.builder.api()

    async def patch(self, *_: Any, patch: Sequence[dict[str, Any]], **__: Any) -> None:
        self.patches += 1
        assert self.builder is not None
        if self.refuse:
            raise KubeRejected("no", status=self.refuse, reason="Test")
        if self.meanwhile:
            self.builder.json["spec"]["taints"] = self.meanwhile.pop(0)
            raise KubeRejected("changed", status=422, reason="Invalid")
        self.builder.json = json_patch(self.builder.json, list(patch))

    @property
    def taints(self) -> list[dict[str, str]]:
        assert self.builder is not None
        return self.builder.json["spec"].get("taints") or []


async def told(api: Api, *, hold: bool) -> NodeHeld:
    events: list[Event] = []
    await NodeWrites(api, events.append).hold(HoldNode("n0", hold))  # type: ignore[arg-type]
    (event,) = events
    assert isinstance(event, NodeHeld)
    return event


def node() -> NodeBuilder:
    builder = make_node("n0")
    builder.json["metadata"]["uid"] = "uid-n0"
    builder.json["spec"] = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}
    return builder


async def test_the_taint_comes_and_goes_beside_others() -> None:
    api = Api(node())
    assert (await told(api, hold=True)).ok
    assert api.taints == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, OURS]
    assert (await told(api, hold=True)).ok
    assert api.patches == 1, "it is there"
    assert (await told(api, hold=False)).ok
    assert api.taints == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]


async def test_a_taint_that_somebody_else_writes_meanwhile_stays() -> None:
    other = {"key": "maintenance", "effect": "NoSchedule"}
    api = Api(node(), [other])
    assert (await told(api, hold=True)).ok
    assert api.taints == [other, OURS]


async def test_a_node_that_changes_again_and_again_is_given_up_and_told() -> None:
    api = Api(node(), *[[{"key": f"k{number}", "effect": "NoSchedule"}] for number in range(9)])
    assert not (await told(api, hold=True)).ok
    assert api.patches == TRIES


async def test_a_refusal_is_told_and_a_node_that_is_gone_too() -> None:
    assert not (await told(Api(node(), refuse=403), hold=True)).ok
    assert (await told(Api(None), hold=True)).gone


def test_the_taint_is_none_to_our_own_rules() -> None:
    builder = node()
    builder.json["spec"]["taints"].append(OURS)
    found = node_from_api(builder.api())
    assert [taint.key for taint in found.taints] == ["gpu"]
    assert found.held
    assert operations(builder.api(), hold=True) == []


async def test_only_so_many_nodes_are_written_at_once() -> None:
    class Slow(Api):
        now = most = 0

        async def get(self, *_: Any, **__: Any) -> KubeNode | None:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return None

    api, events = Slow(None), list[Event]()
    writes = NodeWrites(api, events.append)  # type: ignore[arg-type]
    await asyncio.gather(*(writes.hold(HoldNode(f"n{number}", True)) for number in range(100)))
    assert len(events) == 100
    assert api.most == IN_FLIGHT


# --- what keeps autoscalers from removing it ------------------------------------------------------------------------

DISABLED, UNDISRUPTED = NOT_REMOVED


def noted(api: Api) -> dict[str, str]:
    assert api.builder is not None
    return api.builder.json["metadata"].get("annotations") or {}


@pytest.mark.parametrize("before", [None, {}, {"a/b~c": "d"}], ids=["none", "empty", "others"])
async def test_a_held_node_asks_autoscalers_to_leave_it_alone_and_no_longer(before: dict[str, str] | None) -> None:
    builder = node()
    if before is not None:
        builder.json["metadata"]["annotations"] = dict(before)
    api = Api(builder)
    assert (await told(api, hold=True)).ok
    assert noted(api).items() >= {DISABLED: "true", UNDISRUPTED: "true", **(before or {})}.items()
    assert (await told(api, hold=False)).ok
    assert noted(api) == (before or {})


@pytest.mark.parametrize("value", ["true", "false"])
async def test_what_somebody_else_wrote_for_autoscalers_stays(value: str) -> None:
    builder = node()
    builder.json["metadata"]["annotations"] = {UNDISRUPTED: value}
    api = Api(builder)
    assert (await told(api, hold=True)).ok
    assert (noted(api)[UNDISRUPTED], noted(api)[DISABLED]) == (value, "true")
    assert (await told(api, hold=False)).ok
    assert noted(api) == {UNDISRUPTED: value}


async def test_annotations_that_are_gone_meanwhile_do_not_keep_the_node_closed() -> None:
    api = Api(node())
    await told(api, hold=True)
    del noted(api)[DISABLED]
    assert (await told(api, hold=False)).ok
    assert (api.taints, noted(api)) == ([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}], {})


async def test_annotations_go_though_somebody_took_the_taint_alone_away() -> None:
    api = Api(node())
    await told(api, hold=True)
    assert api.builder is not None
    del api.taints[1]
    assert node_from_api(api.builder.api()).marked
    assert (await told(api, hold=False)).ok
    assert (noted(api), node_from_api(api.builder.api()).marked) == ({}, False)


async def test_a_node_that_is_held_anew_still_knows_what_was_added_before() -> None:
    api = Api(node())
    await told(api, hold=True)
    del api.taints[1], noted(api)[UNDISRUPTED]
    assert (await told(api, hold=True)).ok
    assert (await told(api, hold=False)).ok
    assert noted(api) == {}


@pytest.mark.parametrize("before", [None, {"a/b": "c"}], ids=["none", "others"])
def test_an_annotation_that_somebody_writes_meanwhile_is_not_written_over(before: dict[str, str] | None) -> None:
    builder = node()
    builder.json["metadata"]["annotations"] = before
    patch = operations(builder.api(), hold=True)
    builder.json["metadata"]["annotations"] = {**(before or {}), UNDISRUPTED: "false"}
    with pytest.raises(ApiError):
        json_patch(builder.json, patch)


async def test_a_note_that_names_one_twice_or_another_does_not_keep_the_node_closed() -> None:
    builder = node()
    builder.json["spec"]["taints"].append(OURS)
    note = f"{DISABLED},{DISABLED},a/b,{OUR_ANNOTATIONS}"
    builder.json["metadata"]["annotations"] = {DISABLED: "true", "a/b": "theirs", OUR_ANNOTATIONS: note}
    api = Api(builder)
    assert (await told(api, hold=False)).ok
    assert (OURS in api.taints, noted(api)) == (False, {"a/b": "theirs"})
