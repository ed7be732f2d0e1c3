"""Networks of classes of nodes: who is judged by which, one file for all, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from shared.errors import ConfigError
from shared.model.node import Node
from shared.policy.hybrid.mixture import build, mixture_of, parse, read
from shared.policy.marl.class_networks import joined, split
from shared.policy.marl.policy import MarlDqn
from shared.policy.networks import mlp_fault
from shared.policy.registry import load_policy, members_made, mixable
from shared.policy.weights import ClassNetworks, WeightsFile, decode, digest, encode, shipped
from shared.scheduling.state.node_table import NodeTable
from tests.marl_weights import weights, with_networks
from tests.unit.shared.policy.marl.test_policy import scores

LIKES_FULL, LIKES_EMPTY = weights("terrible"), weights()


def node(name: str, **labels: str) -> Node:
    return Node(name=name, labels=labels, allocatable={"cpu": 4000, "memory": 8_000_000_000, "pods": 110})


def table_of(*nodes: Node) -> NodeTable:
    """Of two nodes in turn one is half full."""
    table = NodeTable(len(nodes))
    for number, one in enumerate(nodes):
        row = table.upsert(one)
        table.requested[:2, row] = (number % 2) * np.array([2000, 4_000_000_000])
    return table


def two_pools() -> WeightsFile:
    return with_networks(LIKES_EMPTY, {"large": 1, "huge": 1}, {1: LIKES_FULL})


def test_a_node_is_judged_by_the_network_of_its_class_and_by_the_shared_one_where_it_has_none() -> None:
    table = table_of(node("a"), node("b", pool="large"), node("c", pool="small"), node("d", pool="huge", zone="z"))
    one, other = scores(MarlDqn(LIKES_EMPTY), table), scores(MarlDqn(LIKES_FULL), table)
    assert scores(MarlDqn(two_pools()), table) == {"a": one["a"], "b": other["b"], "c": one["c"], "d": other["d"]}
    assert one["b"] != other["b"]


def test_where_no_node_ever_had_the_label_the_shared_network_judges_all() -> None:
    table = table_of(node("a"), node("b"))
    assert scores(MarlDqn(two_pools()), table) == scores(MarlDqn(LIKES_EMPTY), table)


def test_a_node_that_is_labelled_anew_is_judged_by_its_new_class_at_once() -> None:
    table, policy = table_of(node("a", pool="small"), node("b", pool="large")), MarlDqn(two_pools())
    other = scores(MarlDqn(LIKES_FULL), table)
    before = scores(policy, table)
    table.upsert(node("a", pool="large"))
    assert scores(policy, table) == other != before
    table.upsert(node("a"))
    assert scores(policy, table) == before


def test_one_digest_names_all_networks_and_they_are_apart_and_together_the_same() -> None:
    data = encode(two_pools())
    file = decode(data, policy="marl-dqn", sha256=digest(data))
    assert file.card.networks == ClassNetworks("pool", {"large": 1, "huge": 1})
    assert split(file.arrays).keys() == {0, 1}
    assert joined(split(file.arrays)).keys() == file.arrays.keys()


def test_a_release_that_knows_no_such_networks_refuses_the_file_and_does_not_decide_by_a_part_of_it() -> None:
    """It reads the card's other fields and takes all arrays for one network: this is its check."""
    arrays = decode(encode(two_pools()), policy="marl-dqn").arrays
    assert mlp_fault(arrays) == "array 'c1.l0.b' is (2,), the layers need none"
    with pytest.raises(ConfigError, match=r"weights of marl-dqn: array 'c1.l0.b' is \(2,\), the layers need none"):
        MarlDqn(WeightsFile(arrays, LIKES_EMPTY.card))


def test_a_mixture_takes_such_a_member_whole() -> None:
    table = table_of(node("a"), node("b", pool="large"))
    mixed = build(mixture_of(parse("marl-dqn=1,least-allocated=0"), mixable({"marl-dqn": two_pools()})))
    made = members_made(read(decode(encode(mixed), policy="hybrid")))
    (member,) = [one for one in made if isinstance(one, MarlDqn)]
    assert scores(member, table) == scores(MarlDqn(two_pools()), table)


def carded(label: str = "pool", **values: int) -> Callable[[WeightsFile], WeightsFile]:
    networks = ClassNetworks(label, values or {"large": 1})
    return lambda file: WeightsFile(file.arrays, msgspec.structs.replace(file.card, networks=networks))


def with_array(name: str, array: np.ndarray | None) -> Callable[[WeightsFile], WeightsFile]:
    def changed(file: WeightsFile) -> WeightsFile:
        arrays = {key: one for key, one in file.arrays.items() if array is not None or key != name}
        return WeightsFile(arrays if array is None else {**arrays, name: array.astype(np.float32)}, file.card)

    return changed


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (carded("a b"), "networks: label 'a b' is no key of a label"),
        (carded(""), "networks: label '' is no key of a label"),
        (carded(**{"two words": 1}), "networks: value 'two words' is none that a label can have"),
        (carded(**{f"v{number}": 1 for number in range(1025)}), "networks: 1025 values are more than 1024"),
        (carded(large=1, small=2), "networks: network 2 is named and has no arrays 'c2.*'"),
        (with_array("c2.l0.b", np.zeros(2)), "networks: arrays 'c2.*' are of a network that no value has"),
        (with_array("l0.w", None), "array 'l0.w'"),
        (with_array("c1.l0.b", None), "network 1: array 'l0.b' is missing"),
        (with_array("c1.l0.w", np.zeros((7, 2))), "network 1: they are for 7 inputs and 2 actions"),
        (with_array("c1.l0.b", np.full(2, np.nan)), "array 'c1.l0.b' holds NaN or infinite values"),
        (with_array("c01.l0.b", np.zeros(2)), "array 'c01.l0.b' is (2,), the layers need none"),
        (with_array("c²2.l0.b", np.zeros(2)), "the layers need none"),
        (with_array("", np.zeros(2)), "the layers need none"),
    ],
)  # fmt: skip
def test_what_the_card_or_the_arrays_do_not_say_rightly_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[WeightsFile], WeightsFile], told: str
) -> None:
    made = with_networks(LIKES_EMPTY, {"large": 1}, {1: LIKES_FULL})
    with monkeypatch.context() as patched:  # the bytes of weights that ``encode`` would refuse
        patched.setattr("shared.policy.weights._check_array", lambda *_: None)
        data = encode(spoil(made))
    with pytest.raises(ConfigError) as refused:
        load_policy("marl-dqn", data=data, sha256=digest(data))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_policy_that_has_one_network_for_all_nodes_refuses_such_a_card() -> None:
    data = encode(carded()(shipped("lb")))
    with pytest.raises(ConfigError, match="weights of lb@2: networks: lb has one for all nodes; leave the field out"):
        load_policy("lb", data=data, sha256=digest(data))


@pytest.mark.parametrize(
    "field",
    [b'"networks":[]', b'"networks":{"label":1,"values":{}}', b'"networks":{"label":"pool","values":{"large":0}}'],
)
def test_a_field_of_another_form_is_refused_by_its_name(field: bytes) -> None:
    good = b'"networks":{"label":"pool","values":{"large":1}}'
    data = encode(with_networks(LIKES_EMPTY, {"large": 1}, {1: LIKES_FULL}))
    assert good in data
    with pytest.raises(ConfigError, match=r"the card cannot be read \(.*networks.*\)") as refused:
        _card_of(data, good, field)
    assert "\n" not in str(refused.value)


def _card_of(data: bytes, good: bytes, field: bytes) -> None:
    from shared.policy.weights import _card

    start = data.index(b"{", data.index(b"__card__"))
    start = data.index(b'{"', start if data[start : start + 2] == b'{"' else start + 1)
    end = data.index(b"}PK", start) + 1
    _card(np.frombuffer(data[start:end].replace(good, field), np.uint8), "marl-dqn")
