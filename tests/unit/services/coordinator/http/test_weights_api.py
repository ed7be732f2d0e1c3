"""Weights over the admin API: what is sent is checked whole before anything is written; the policy in use goes on."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from services.cli.operate.policy_text import card_lines
from shared.policy.weights import MAX_BYTES, WeightsFile, decode, digest, encode, shipped, shipped_names
from shared.runtime.records import policy_changes as changes
from shared.runtime.records.admin import read_audit
from shared.runtime.records.policies import get_weights, read_pointer
from tests.hostile_weights import bomb
from tests.marl_weights import with_networks
from tests.unit.services.coordinator.http.api_world import KEYS, Answered, ApiWorld, api_world

PATH = "/v1/policies/weights"
SENT = ["ee", "el", "frag", "lb", "marl-dqn"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ApiWorld]:
    async with api_world(tmp_path) as opened:
        yield opened


def mine(policy: str, **card: Any) -> bytes:
    """Weights that are not those of the package."""
    file = shipped(policy)
    arrays = {name: (array * np.float32(0.5)).astype(np.float32) for name, array in file.arrays.items()}
    return encode(WeightsFile(arrays, msgspec.structs.replace(file.card, **card)))


def body(data: bytes, name: str = "lb", **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": digest(data), "data": b64encode(data).decode(), **more}


async def send(
    world: ApiWorld, data: bytes, name: str = "lb", *, role: str = "admin", at: str = "c0", **more: Any
) -> Answered:
    sent = BytesIO(json.dumps(body(data, name, **more)).encode())
    return await world.ask("POST", PATH, role, at=at, data=sent, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("policy", SENT)
async def test_weights_of_each_learned_policy_are_tried_in_shadow_and_kept_under_their_digest(
    world: ApiWorld, policy: str
) -> None:
    assert policy in shipped_names()
    answered = await send(world, mine(policy), policy, reason="trained here")
    assert answered.status == 200, answered.text
    pointer = answered.json["pointer"]
    assert (pointer["candidate"]["name"], pointer["stage"]) == (policy, "shadow")
    kept = await get_weights(world.store, KEYS, pointer["candidate"]["sha256"])
    assert kept is not None
    assert decode(kept, policy=policy).card.version == shipped(policy).card.version + 1  # the package's title is taken


async def test_it_takes_an_admin_by_the_leader_and_by_a_standby(world: ApiWorld) -> None:
    for role in ("viewer", "operator"):
        assert (await send(world, mine("lb"), role=role)).code == "forbidden"
    assert (await read_pointer(world.store, KEYS)).pointer.candidate is None
    assert (await send(world, mine("lb"), at="c1")).status == 200


async def test_the_audit_log_names_policy_digest_and_reason_and_never_the_bytes(world: ApiWorld) -> None:
    data = mine("lb")
    await send(world, data, reason="trained here")
    record = (await read_audit(world.store, KEYS))[-1]
    assert (record.by, record.target, record.reason) == ("admin-1", f"lb {digest(data)[:12]}", "trained here")
    assert len(msgspec.json.encode(record)) < 1000


def other_shape(file: WeightsFile) -> WeightsFile:
    return replace(file, arrays={**file.arrays, "l0.w": np.zeros((3, 32), np.float32)})


def not_a_number(file: WeightsFile) -> WeightsFile:
    return replace(file, arrays={**file.arrays, "l0.b": np.full_like(file.arrays["l0.b"], np.nan)})


def carded(**changes: Any) -> Callable[[WeightsFile], WeightsFile]:
    return lambda file: replace(file, card=msgspec.structs.replace(file.card, **changes))


def unchecked(file: WeightsFile, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bytes of weights that ``encode`` would refuse."""
    with monkeypatch.context() as patched:
        patched.setattr("shared.policy.weights._check_array", lambda *_: None)
        patched.setattr("shared.policy.weights._check_card", lambda *_: None)
        return encode(file)


@pytest.mark.parametrize("policy", SENT)
@pytest.mark.parametrize(
    ("spoil", "code", "told"),
    [
        pytest.param(other_shape, "weights_invalid", "", id="shape"),
        pytest.param(not_a_number, "weights_invalid", "array 'l0.b' holds NaN or infinite values", id="nan"),
        pytest.param(carded(features=["cpu", "colour"]), "weights_invalid", "unknown: ", id="inputs"),
        pytest.param(carded(version=0), "weights_invalid", "version 0 is below 1", id="version"),
        pytest.param(carded(policy="crystal-ball"), "weights_invalid", "belong to policy 'crystal-ball'", id="policy"),
        pytest.param(carded(goal="gold"), "invalid_value", "goal: 'gold' is not known; choose one of", id="goal"),
        pytest.param(carded(goal="reward: 1 / nodez"), "invalid_value", "there is no feature 'nodez'", id="reward"),
    ],
)
@pytest.mark.parametrize("stage", ["shadow", "active"])
async def test_bad_weights_get_one_line_and_a_stable_code_and_the_policy_in_use_goes_on(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch, policy: str, spoil: Any, code: str, told: str, stage: str
) -> None:
    before = (await read_pointer(world.store, KEYS)).pointer
    refused = await send(world, unchecked(spoil(shipped(policy)), monkeypatch), policy, stage=stage)
    assert (refused.status, refused.code) == (422, code), refused.text
    assert told in refused.json["message"]
    assert "\n" not in refused.json["message"]
    assert len(refused.json["message"]) < 512  # whole, with its remedy
    assert (await read_pointer(world.store, KEYS)).pointer == before
    assert (await world.store.list_prefix(KEYS.policy_weights_prefix)).items == ()


async def test_networks_that_the_card_does_not_fit_are_refused_in_one_line_too(world: ApiWorld) -> None:
    file = shipped("marl-dqn")
    bad = with_networks(file, {"large": 2}, {1: file})
    refused = await send(world, encode(bad), "marl-dqn", stage="active")
    assert (refused.status, refused.code) == (422, "weights_invalid")
    assert "networks: network 2 is named and has no arrays 'c2.*'" in refused.json["message"]
    good = encode(with_networks(file, {"large": 1}, {1: file}))
    answered = await send(world, good, "marl-dqn")
    card = (await world.ask("GET", f"/v1/policies/{answered.json['pointer']['candidate']['sha256']}/card")).json["card"]
    assert card["networks"] == {"label": "pool", "values": {"large": 1}}
    told = "\n".join(card_lines(card))
    assert "\nnetworks  1: nodes of pool=large\n          shared: all other nodes\n" in told


async def test_another_digest_than_was_said_is_refused(world: ApiWorld) -> None:
    sent = body(mine("lb")) | {"sha256": digest(b"other")}
    refused = await world.ask("POST", PATH, json=sent)
    assert (refused.status, refused.code) == (422, "digest_differs")
    flipped = bytearray(mine("lb"))
    flipped[-40] ^= 1
    sent = body(mine("lb")) | {"data": b64encode(bytes(flipped)).decode()}
    assert (await world.ask("POST", PATH, json=sent)).code == "digest_differs"
    assert (await world.store.list_prefix(KEYS.policy_weights_prefix)).items == ()


@pytest.mark.parametrize("policy", SENT)
async def test_an_archive_of_overlapping_members_is_refused_in_one_line(world: ApiWorld, policy: str) -> None:
    refused = await send(world, bomb(300), policy)
    assert (refused.status, refused.code) == (422, "weights_invalid")
    assert "its members claim more bytes than the file has" in refused.json["message"]
    assert (await world.store.list_prefix(KEYS.policy_weights_prefix)).items == ()


async def test_weights_are_numbered_and_read_beside_the_leaders_loop(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    whole = changes.numbered

    def noting(*words: Any) -> bytes:
        threads.append(threading.get_ident())
        return whole(*words)

    monkeypatch.setattr(changes, "numbered", noting)
    assert (await send(world, mine("lb"))).status == 200
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("at", ["c0", "c1"])
async def test_too_much_is_refused_by_its_size_whoever_is_asked(world: ApiWorld, at: str) -> None:
    for length in (MAX_BYTES + 1, 2 * MAX_BYTES):
        refused = await send(world, bytes(length), at=at)
        assert (refused.status, refused.code) == (413, "too_large")
    assert (await send(world, bytes(MAX_BYTES), at=at)).code == "weights_invalid"


async def test_what_is_no_upload_is_refused_by_the_field(world: ApiWorld) -> None:
    good = body(mine("lb"))
    for wrong, field in (
        ({"sha256": "x" * 64}, "sha256"), ({"data": "%%%"}, "data"), ({"data": 7}, "data"),
        ({"stage": "best"}, "stage"),
        ({"weights": ""}, "weights"),
    ):  # fmt: skip
        refused = await world.ask("POST", PATH, json=good | wrong)
        assert (refused.status, refused.code) == (400, "invalid_request")
        assert field in refused.json["message"]
    for missing in ("name", "sha256", "data"):
        cut = {name: value for name, value in good.items() if name != missing}
        assert (await world.ask("POST", PATH, json=cut)).code == "invalid_request"
    assert (await send(world, mine("lb"), percent=5)).code == "invalid_value"
    assert (await send(world, mine("lb"), "lb@9")).code == "weights_invalid"


async def test_the_same_weights_sent_again_have_the_title_they_had(world: ApiWorld) -> None:
    first = (await send(world, mine("lb"))).json["pointer"]
    again = (await send(world, mine("lb"))).json["pointer"]
    assert again["candidate"] == first["candidate"]
    other = (await send(world, mine("lb", limits=["other"]))).json["pointer"]["candidate"]
    assert other["version"] == first["candidate"]["version"] + 1


async def test_a_goal_that_the_operator_names_counts_instead_of_an_unknown_one(world: ApiWorld) -> None:
    assert (await send(world, mine("lb", goal="gold"), goal="balance")).json["pointer"]["goal"] == "balance"
