"""Two versions side by side, as in a rolling upgrade: what one wrote, the other reads, over bytes that were recorded.

The bytes are those of earlier versions of this code, for one and the same content: before there were gangs, before
nodes were divided into shards, and before an intent left out what is as by default. The older readers are the shapes
that those versions had. A change that makes one of these fail needs a new major version of the wire, not new bytes.
"""

from __future__ import annotations

from typing import Any

import msgpack
import msgspec
import pytest

from shared.scheduling.shards import Shards
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, Gang, Outcome, Placement, PlacementResult, Plan, PlanResult
from shared.wire.records import Intent, IntentPod, decode_record, encode_record

GROUP = "native:default/train"

_POD = '{"uid":"u1","ns":"default","name":"p1","rv":"41","node":"n1","devices":[]'
_HEAD = '{"plan_id":5,"coordinator_term":3,"unit":7,"pods":['
_TAIL = '],"term":11,"policy":"kube-default@1"'
LONE = {
    "before gangs": f"{_HEAD}{_POD}}}{_TAIL}}}",
    "before shards": f'{_HEAD}{_POD},"unit":0}}{_TAIL},"group":"","min_count":1,"links":0}}',
    "every field": f'{_HEAD}{_POD},"unit":0}}{_TAIL},"group":"","min_count":1,"links":0,"shard":"0"}}',
}
_MEMBERS = f'{_POD},"unit":7}},{{"uid":"u2","ns":"default","name":"p2","rv":"42","node":"n2","devices":[1],"unit":8}}'
GANG = {
    "before shards": f'{_HEAD}{_MEMBERS}{_TAIL},"group":"{GROUP}","min_count":2,"links":0}}',
    "every field": f'{_HEAD}{_MEMBERS}{_TAIL},"group":"{GROUP}","min_count":2,"links":0,"shard":"0"}}',
}
_PLACED = b"\x91\x9b\x07\xa2u1\xa7default\xa2p1\xa241\xa2n1\x91\xa2n2\xackube-default\x01\x05\xcd\x01,"
PLAN = {
    "before gangs": b"\x98\x05\x01\x05\x02\x03\x05" + _PLACED + b"\x90",
    "before shards": b"\x99\x05\x01\x05\x02\x03\x05" + _PLACED + b"\x90\x90",
}
RESULT = b"\x99\x06\x01\x06\x05\x03\x05\x91\x97\x07\x00\xa2n1\xa0\xcd\x03\x84\x00\x00\xcd\x04\xb0\x90"
"""The same in all of them."""

lone = Intent(
    plan_id=5, coordinator_term=3, unit=7, term=11, policy="kube-default@1",
    pods=(IntentPod(uid="u1", ns="default", name="p1", rv="41", node="n1"),),
)  # fmt: skip
gang = Intent(
    plan_id=5, coordinator_term=3, unit=7, term=11, policy="kube-default@1", group=GROUP, min_count=2,
    pods=(
        IntentPod(uid="u1", ns="default", name="p1", rv="41", node="n1", unit=7),
        IntentPod(uid="u2", ns="default", name="p2", rv="42", node="n2", devices=(1,), unit=8),
    ),
)  # fmt: skip
plan = Plan(VERSION, 5, 2, 3, 5, [Placement(7, "u1", "default", "p1", "41", "n1", ["n2"], "kube-default", 1, 5, 300)])
result = PlanResult(VERSION, 6, 5, 3, 5, [PlacementResult(7, Outcome.BOUND, "n1", "", 900)], 1200)


class OldPod(msgspec.Struct, frozen=True, kw_only=True):
    """As before gangs: a reader knows these fields, wants those without a default, and skips all others."""

    uid: str
    ns: str
    name: str
    rv: str
    node: str
    devices: tuple[int, ...] = ()


class OldIntent(msgspec.Struct, frozen=True, kw_only=True):
    """As before gangs."""

    plan_id: int
    coordinator_term: int
    unit: int
    pods: tuple[OldPod, ...]
    term: int = 0
    policy: str = ""


class GangPod(OldPod, frozen=True, kw_only=True):
    """As before shards."""

    unit: int = 0


class GangIntent(msgspec.Struct, frozen=True, kw_only=True):
    """As before shards, and before anything was left out."""

    plan_id: int
    coordinator_term: int
    unit: int
    pods: tuple[GangPod, ...]
    term: int = 0
    policy: str = ""
    group: str = ""
    min_count: int = 1
    links: int = 0


def fields(record: Any, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in names)


@pytest.mark.parametrize("version", LONE)
def test_a_new_binder_finishes_what_an_older_one_committed(version: str) -> None:
    assert decode_record(LONE[version].encode(), Intent) == lone


@pytest.mark.parametrize("version", GANG)
def test_a_new_binder_finishes_a_gang_that_an_older_one_committed(version: str) -> None:
    assert decode_record(GANG[version].encode(), Intent) == gang


def test_what_was_committed_before_shards_is_the_first_ones_to_finish() -> None:
    found = decode_record(LONE["before shards"].encode(), Intent)
    assert Shards(("0", "1"), 3).resolver("u1", found) == "0"


@pytest.mark.parametrize(
    "intent", [lone, gang, msgspec.structs.replace(lone, shard="1")], ids=["lone", "gang", "shard"]
)
def test_an_older_binder_and_coordinator_read_what_a_new_binder_committed(intent: Intent) -> None:
    """It leaves out what is as by default: older readers have the same defaults."""
    written = encode_record(intent)
    known = ("plan_id", "coordinator_term", "unit", "term", "policy")
    oldest, older = decode_record(written, OldIntent), decode_record(written, GangIntent)
    assert oldest is not None
    assert older is not None
    assert fields(oldest, *known) == fields(intent, *known)
    more = (*known, "group", "min_count", "links")
    assert fields(older, *more) == fields(intent, *more)
    for mine, theirs in zip(intent.pods, older.pods, strict=True):
        known_to_both = {
            key: value for key, value in msgspec.structs.asdict(mine).items() if key not in ("claims", "reservation")
        }
        assert known_to_both == msgspec.structs.asdict(theirs)


def test_an_intent_that_left_out_what_older_readers_demand_is_unreadable_to_them() -> None:
    """The switch of the test above: it would be found."""
    written = msgspec.json.decode(encode_record(lone))
    del written["coordinator_term"]
    assert decode_record(msgspec.json.encode(written), OldIntent) is None


@pytest.mark.parametrize("version", PLAN)
def test_a_new_binder_takes_the_plan_of_an_older_coordinator(version: str) -> None:
    assert decode(PLAN[version], Plan) == plan


@pytest.mark.parametrize("version", PLAN)
def test_an_older_binder_finds_what_it_knows_at_the_head_of_a_new_plan(version: str) -> None:
    """Messages are arrays: a reader takes the fields it knows, and the rest follows."""
    old, new = msgpack.unpackb(PLAN[version]), msgpack.unpackb(encode(plan))
    assert head(new, old) == old
    together = msgspec.structs.replace(plan, gangs=[Gang(9, GROUP, [7], 1)])
    before = msgpack.unpackb(PLAN["before gangs"])
    assert head(msgpack.unpackb(encode(together))[:8], before) == before


def head(new: Any, old: Any) -> Any:
    """What a reader of the fields of ``old`` takes of ``new``: a message's first ones, at every depth. Lists of
    messages have as many as they had."""
    if not isinstance(new, list) or not isinstance(old, list):
        return new
    if not all(isinstance(one, list) for one in old):
        new = new[: len(old)]
    return [head(mine, theirs) for mine, theirs in zip(new, old, strict=True)] if len(new) == len(old) else new


def test_a_new_coordinator_takes_the_results_of_an_older_binder_and_an_older_one_those_of_a_new() -> None:
    """Before loans a result ended with the evictions."""
    old, new = msgpack.unpackb(RESULT), msgpack.unpackb(encode(result))
    assert new == [*old, []]
    assert decode(RESULT, PlanResult) == result
