"""A title names one set of weights."""

from __future__ import annotations

from shared.policy.numbering import numbered
from shared.policy.weights import decode, digest, encode
from shared.wire.records import PolicyRef
from tests.marl_weights import weights


def ref(kind: str, version: int) -> PolicyRef:
    return PolicyRef("marl-dqn", version, digest(encode(weights(kind, version=version))))


def version_of(data: bytes) -> int:
    return decode(data, policy="marl-dqn").card.version


def test_a_free_title_is_kept_byte_by_byte() -> None:
    data = encode(weights("good"))
    assert numbered(data, "marl-dqn", [PolicyRef("frag", 1, "b" * 64)]) is data
    assert numbered(data, "marl-dqn", [ref("good", 1), ref("terrible", 2)]) is data


def test_other_weights_under_a_taken_title_are_numbered_on() -> None:
    data = encode(weights("good"))
    on = numbered(data, "marl-dqn", [ref("terrible", 1), ref("terrible", 4)])
    assert version_of(on) == 5
    assert encode(weights("good", version=5)) == on


def test_weights_that_were_numbered_on_keep_that_number() -> None:
    known = [ref("terrible", 1), ref("good", 2), ref("terrible", 3)]
    assert digest(numbered(encode(weights("good")), "marl-dqn", known)) == known[1].sha256
