"""What a mixture is: what is refused by which field, and that its file says all of it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from shared.errors import ConfigError
from shared.policy.hybrid.mixture import NAME, MixtureInvalid, build, mixture_of, parse, read, read_definition
from shared.policy.registry import bytes_of, load_policy, make_policy, mixable, needs_of_name, needs_of_ref, ref_of
from shared.policy.weights import WeightsFile, decode, digest, encode
from tests.builders import make_pod

BATCH = {"policy.conclave.io/tier": "batch"}
DOCUMENT = {
    "policies": {"kube-default": 0.7, "most-allocated": 0.3},
    "by_class": [
        {"name": "batch", "selector": {"matchLabels": BATCH}, "policies": {"most-allocated": 2.0}},
        {
            "name": "other",
            "selector": {
                "matchExpressions": [{"key": "policy.conclave.io/tier", "operator": "In", "values": ["batch", "x"]}]
            },
            "policies": {"kube-default": 1.0},
        },
    ],
}


def made(document=DOCUMENT):
    return mixture_of(read_definition(document, "mix.toml"), mixable({}))


def changed(**fields):
    return {**DOCUMENT, **fields}


def test_weights_become_shares_and_the_first_class_that_matches_counts() -> None:
    mixture = made()
    assert mixture.weights.tolist() == [[0.7, 0.3], [0.0, 1.0], [1.0, 0.0]]
    of = {
        tier: mixture.class_of(make_pod().set(labels={"policy.conclave.io/tier": tier}).pod().pod_class)
        for tier in ("batch", "x", "none")
    }
    assert of == {"batch": 1, "x": 2, "none": 0}


def test_pods_are_told_apart_by_the_labels_of_policies_alone() -> None:
    plain, labelled = (make_pod().set(labels={"app": app}).pod().pod_class for app in ("a", "b"))
    assert plain == labelled
    assert make_pod().set(labels=BATCH).pod().pod_class.labels == (("policy.conclave.io/tier", "batch"),)


def test_the_file_says_all_and_comes_back_as_it_was() -> None:
    mixture = mixture_of(parse("kube-default=1,lb=3"), mixable({}))
    data = encode(build(mixture))
    again = read(decode(data, policy=NAME))
    assert again.members == mixture.members
    assert again.weights.tolist() == [[0.25, 0.75]]
    assert encode(build(again)) == data
    assert {name: array.tolist() for name, array in again.files["lb"].arrays.items()} == {
        name: array.tolist() for name, array in mixture.files["lb"].arrays.items()
    }


def test_weights_and_members_are_part_of_the_digest() -> None:
    names = ("kube-default=1,lb=3", "kube-default=1,lb=2", "kube-default=1,ee=3")
    assert len({ref_of(name).sha256 for name in names}) == len(names)


def test_a_short_form_is_a_policy_wherever_one_is_named() -> None:
    name = "kube-default=0.7,marl-dqn=0.3"
    ref, data = ref_of(name), bytes_of(name)
    assert data is not None
    assert (ref.name, ref.version, ref.sha256, ref.members) == (NAME, 1, digest(data), ("kube-default", "marl-dqn"))
    assert load_policy(NAME, data=data, sha256=ref.sha256).members[1].name == make_policy("marl-dqn").name


def test_a_mixture_needs_what_any_member_needs() -> None:
    ref = ref_of("kube-default=0.7,marl-dqn=0.3")
    assert needs_of_ref(ref) >= needs_of_name("kube-default") | needs_of_name("marl-dqn")
    assert not needs_of_ref(ref_of("most-allocated=1")) & needs_of_name("marl-dqn")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("kube-defalt=1", "policies: 'kube-defalt' is no policy that can be mixed; did you mean kube-default?"),
        ("kube-default=0,lb=0", "policies: the weights sum to 0"),
        ("kube-default=1,lb=-1", "policies.lb: -1 is no weight"),
        ("kube-default=nan,lb=1", "policies.kube-default: nan is no weight"),
        ("kube-default=1e400", "policies.kube-default: inf is no weight"),
        ("kube-default=x", "policies.kube-default: 'x' is no number"),
        ("kube-default=1,kube-default=2", "policies.kube-default: is given twice"),
        ("kube-default=1,", "policies: '' is no POLICY=WEIGHT"),
        ("hybrid=1,lb=1", "policies: 'hybrid' is no policy that can be mixed"),
    ],
)
def test_a_bad_short_form_is_one_line_that_names_the_field(name: str, field: str) -> None:
    with pytest.raises(MixtureInvalid) as refused:
        make_policy(name)
    assert str(refused.value).startswith(field)
    assert "\n" not in str(refused.value)
    assert refused.value.code == "mixture_invalid"


CLASS = DOCUMENT["by_class"][0]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (changed(policies={}), "policies: the weights sum to 0"),
        (changed(policies={"kube-default": "a lot"}), "mix.toml: Expected `float`"),
        (changed(polices={}), "mix.toml: Object contains unknown field `polices`"),
        (changed(roles={"kube-default": "boss"}), "mix.toml: Invalid enum value 'boss' - at `$.roles[...]`"),
        (changed(roles={"lb": "decides"}), "roles.lb: is no member"),
        (changed(scales={"kube-default": [1, 1]}), "scales.kube-default: [1, 1] is no range"),
        (changed(by_class=[{**CLASS, "policies": {}}]), "by_class[0].policies: the weights sum to 0"),
        (changed(by_class=[CLASS, CLASS]), "by_class[1].name: 'batch' is empty or given twice"),
        (changed(by_class=[{**CLASS, "selector": {}}]), "by_class[0].selector: asks for nothing"),
        (
            changed(by_class=[{**CLASS, "selector": {"matchLabels": {"app": "x"}}}]),
            "by_class[0].selector: 'app' is no label that policies see",
        ),
    ],
)
def test_a_bad_definition_is_one_line_that_names_the_field(document, field: str) -> None:
    with pytest.raises(MixtureInvalid) as refused:
        made(document)
    assert str(refused.value).startswith(field)


def tampered(weights=None, **card) -> bytes:
    file = build(made())
    told = {**file.card.mixture, **card}
    arrays = {**file.arrays} if weights is None else {"weights": np.array(weights, np.float32)}
    return encode(WeightsFile(arrays, msgspec.structs.replace(file.card, mixture=told)))


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (tampered([[0, 0], [1, 0], [1, 0]]), "policies: the weights sum to 0"),
        (tampered([[1, 0], [-1, 2], [1, 0]]), r"by_class\[0\]\.policies\.kube-default: -1 is no weight"),
        (tampered([[1, 0]]), r"array 'weights' is \(1, 2\), the card says \(3, 2\)"),
        (tampered(members=[]), "members: there must be 1 to 8"),
        (tampered(members=[{"policy": "nobody", "version": 1}] * 2), "members: there must be 1 to 8, each once"),
        (
            tampered(members=[{"policy": "nobody", "version": 1}, {"policy": "kube-default", "version": 1}]),
            "members: 'nobody' is not to be had here",
        ),
        (tampered(members=7), "its card says no mixture"),
        (
            encode(WeightsFile({}, msgspec.structs.replace(build(made()).card, mixture=msgspec.UNSET))),
            "says no mixture",
        ),
    ],
)
def test_a_file_that_cannot_decide_is_refused_when_it_is_loaded(data: bytes, wrong: str) -> None:
    with pytest.raises(MixtureInvalid, match=wrong):
        load_policy(NAME, data=data, sha256=digest(data))


def test_a_mixture_has_no_weights_of_its_own_name() -> None:
    with pytest.raises(ConfigError, match="hybrid is made of others"):
        make_policy(NAME)


def test_cards_of_other_policies_are_written_as_before() -> None:
    file = make_file()
    assert b"mixture" not in encode(file)


def make_file() -> WeightsFile:
    return mixable({})["lb"].weights
