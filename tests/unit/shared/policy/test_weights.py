"""The weights file: the same bytes for the same weights, and a refusal by name for everything that does not fit."""

import io
import struct
import zipfile

import msgspec
import numpy as np
import pytest

from shared.errors import ConfigError
from shared.policy import weights as weights_module
from shared.policy.weights import (
    CARD,
    MAX_BYTES,
    Card,
    WeightsFile,
    decode,
    digest,
    encode,
    policy_of,
    shipped,
    shipped_names,
)
from tests.hostile_weights import bomb

SHAPES = {"l0.w": (3, 4), "l0.b": (4,)}


def weights(policy="marl-dqn", *, version=1, order=("l0.w", "l0.b"), **card):
    arrays = {name: np.arange(np.prod(SHAPES[name]), dtype=np.float32).reshape(SHAPES[name]) for name in order}
    return WeightsFile(arrays, Card(policy=policy, version=version, **card))


def rewritten(data, **changes):
    """``data`` with members replaced (bytes), or left out (None), as a damaged or foreign file would be."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
        for info in source.infolist():
            content = changes.get(info.filename, source.read(info))
            if content is not None:
                target.writestr(info.filename, content)
        for name in changes.keys() - {info.filename for info in source.infolist()}:
            target.writestr(name, changes[name])
    return out.getvalue()


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def card_bytes(**fields):
    return npy(np.frombuffer(msgspec.json.encode(fields), np.uint8))


def test_what_was_encoded_comes_back_with_its_digest():
    file = weights(features=["cpu", "memory", "pods"], figures={"imbalance": 0.5}, limits=["4 nodes"])
    data = encode(file)
    found = decode(data, policy="marl-dqn", expect_shapes=SHAPES, sha256=digest(data))
    assert found.sha256 == digest(data)
    assert found.title == "marl-dqn@1"
    assert found.card.features == ["cpu", "memory", "pods"]
    assert found.card.shapes == {"l0.w": [3, 4], "l0.b": [4]}
    for name, array in file.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)


def test_the_same_weights_give_the_same_bytes_whatever_the_order():
    one = encode(weights(trained={"a": 1, "b": 2}))
    other = encode(weights(order=("l0.b", "l0.w"), trained={"b": 2, "a": 1}))
    assert one == other


def test_one_changed_value_changes_the_digest():
    file = weights()
    changed = {**file.arrays, "l0.b": file.arrays["l0.b"] + np.float32(1e-6)}
    assert digest(encode(file)) != digest(encode(WeightsFile(changed, file.card)))


def test_numpy_opens_the_file_without_pickles():
    with np.load(io.BytesIO(encode(weights())), allow_pickle=False) as archive:
        assert sorted(archive.files) == [CARD, "l0.b", "l0.w"]


def test_loaded_arrays_cannot_be_written():
    found = decode(encode(weights()), policy="marl-dqn")
    with pytest.raises(ValueError, match="read-only"):
        found.arrays["l0.w"][0, 0] = 1


def test_another_digest_is_refused():
    with pytest.raises(ConfigError, match=r"digest is .* was asked for"):
        decode(encode(weights()), policy="marl-dqn", sha256="0" * 64)


def test_another_policys_weights_are_refused():
    with pytest.raises(ConfigError, match="belong to policy 'frag'"):
        decode(encode(weights("frag")), policy="marl-dqn")


def test_another_schema_is_refused_before_the_rest_is_read():
    data = rewritten(encode(weights()), **{f"{CARD}.npy": card_bytes(schema=2, brain="new")})
    with pytest.raises(ConfigError, match="schema 2 is not 1"):
        decode(data, policy="marl-dqn")


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        pytest.param({**SHAPES, "l0.w": (5, 4)}, r"'l0.w' is \(3, 4\), the policy takes \(5, 4\)", id="shape"),
        pytest.param({**SHAPES, "l1.w": (4, 1)}, "missing: l1.w", id="missing"),
        pytest.param({"l0.w": (3, 4)}, "not known: l0.b", id="extra"),
    ],
)
def test_other_shapes_than_the_policy_takes_are_refused(expect, message):
    with pytest.raises(ConfigError, match=message):
        decode(encode(weights()), policy="marl-dqn", expect_shapes=expect)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"l0.b.npy": npy(np.zeros(5, np.float32))}, "its card says", id="shape not as on the card"),
        pytest.param({"l0.b.npy": npy(np.array([0, 1, np.nan, 3], np.float32))}, "'l0.b' holds NaN", id="nan"),
        pytest.param({"l0.b.npy": npy(np.array([0, 1, np.inf, 3], np.float32))}, "'l0.b' holds NaN", id="infinite"),
        pytest.param({"l0.b.npy": npy(np.array([0, 1, -2e4, 3], np.float32))}, "beyond", id="absurdly large"),
        pytest.param({"l0.b.npy": npy(np.zeros(4))}, "is float64, not float32", id="type"),
        pytest.param({"l0.b.npy": npy(np.array([{}], object))}, "not a readable .npz", id="pickle"),
        pytest.param({"l0.b.npy": b"no array"}, "not a readable .npz", id="no array"),
        pytest.param({"l0.b.npy": npy(np.zeros((4, 1), np.float32))[:-4]}, "another size than", id="short array"),
        pytest.param(
            {"l0.b.npy": npy(np.zeros(4, np.float32)).replace(b"(4,), }         ", b"(4000000000,), }")},
            "another size than",
            id="header asks for 16 GB",
        ),
        pytest.param({"readme.txt": b"hello"}, "'readme.txt' is not a stored .npy", id="foreign member"),
        pytest.param({f"{CARD}.npy": None}, "no card inside", id="no card"),
        pytest.param({f"{CARD}.npy": card_bytes(schema=1, policy="marl-dqn")}, "card cannot be read", id="short card"),
    ],
)
def test_a_damaged_file_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        decode(rewritten(encode(weights()), **changes), policy="marl-dqn")


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"x" * 1000], ids=["empty", "cut", "noise"])
def test_bytes_that_are_no_archive_are_refused(data):
    with pytest.raises(ConfigError, match=r"not a readable \.npz"):
        decode(data, policy="marl-dqn")


def test_every_cut_and_every_flipped_byte_is_refused_under_its_digest():
    data = encode(weights())
    name = digest(data)
    for at in range(0, len(data), 37):
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for damaged in (flipped, data[:at]):
            with pytest.raises(ConfigError, match="digest is"):
                decode(damaged, policy="marl-dqn", sha256=name)


def test_deflated_members_are_refused_so_that_a_small_file_cannot_grow():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("l0.w.npy", npy(np.zeros(10_000_000, np.float32)))
    with pytest.raises(ConfigError, match=r"not a stored \.npy"):
        decode(out.getvalue(), policy="marl-dqn")


def twice_named(data, times):
    """``data`` with its first entry so many times over in the directory."""
    end = data.rindex(b"PK\5\6")
    size, start = struct.unpack("<2I", data[end + 12 : end + 20])
    central = data[start:end]
    one = central[: central.index(b"PK\1\2", 4)]
    count = central.count(b"PK\1\2") + times
    tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, size + times * len(one), start, 0)
    return data[:start] + one * times + central + tail


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(bomb(200), "claim more bytes than the file has", id="overlapping"),
        pytest.param(twice_named(encode(weights()), 1), "two of its members have one name", id="one twice"),
        pytest.param(twice_named(encode(weights()), 9_000), "claim more bytes than the file has", id="one often"),
    ],
)
def test_members_that_overlap_are_refused_before_one_is_read(monkeypatch, data, message):
    read = []
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda _, name, *more: read.append(name))
    for refuse in (lambda: decode(data, policy="lb"), lambda: policy_of(data, "f.npz")):
        with pytest.raises(ConfigError, match=message):
            refuse()
    assert read == []


def test_without_the_check_of_sizes_overlapping_members_would_be_read_whole(monkeypatch):
    monkeypatch.setattr(weights_module, "_check_sizes", lambda *_: None)
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda self, info: self.fp.getvalue()[-info.file_size :])
    sizes = []
    monkeypatch.setattr(weights_module, "_array", lambda member: sizes.append(len(member)))
    data = bomb(200)
    with pytest.raises(ConfigError, match="no card inside"):
        decode(data, policy="lb")
    assert sum(sizes) > 50 * len(data)


def headed(text):
    """A .npy of version 1.0 with this header."""
    head = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + bytes(16)


@pytest.mark.parametrize(
    "header",
    [
        "{'shape': (3,",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 5: 6}",
        "{'descr': (), 'fortran_order': False, 'shape': (4,)}",
        "{'descr': [()], 'fortran_order': False, 'shape': (4,)}",
        "{'descr': [('a', '<f4', 0, 0)], 'fortran_order': False, 'shape': (4,)}",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (0, 1" + 30 * "0" + ")}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1" + 30 * "0" + ")}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -2)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
        9_000 * "-" + "1",
        9_000 * "(",
        3_000 * "{1:",
        "\x00",
        "",
    ],
)
def test_whatever_an_arrays_header_holds_it_is_refused_in_one_line(header):
    data = rewritten(encode(weights()), **{"l0.b.npy": headed(header)})
    with pytest.raises(ConfigError, match=r"not a readable \.npz|an array of objects") as refused:
        decode(data, policy="marl-dqn")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "text",
    [
        b'{"schema": 1, "x": ' + 100_000 * b"[",
        b'{"schema": 1, "policy": "lb", "version": 1, "trained": {"x": ' + 5_000 * b"[" + 5_000 * b"]" + b"}}",
        b'{"schema": 1, "policy": "\xff", "version": 1}',
        b'{"schema": 1, "policy": "lb", "version": 1' + 400 * b"0" + b"}",
        b'{"schema": 1, "policy": "lb", "version": -1' + 5_000 * b"0" + b"}",
        b'{"schema": 1, "policy": "lb", "version": 1, "shapes": {"l0.b": [1' + 5_000 * b"0" + b"]}}",
        b'{"schema": 1' + 5_000 * b"0" + b"}",
        b"[]",
        b"",
    ],
)
def test_whatever_a_card_holds_it_is_refused_in_one_line(text):
    data = rewritten(encode(weights()), **{f"{CARD}.npy": npy(np.frombuffer(text, np.uint8))})
    with pytest.raises(ConfigError, match=r"card cannot be read|version is above 1000000000") as refused:
        decode(data, policy="lb")
    assert "\n" not in str(refused.value)


def test_weights_too_large_for_etcd_are_not_written():
    arrays = {"l0.w": np.zeros(MAX_BYTES // 4 + 1, np.float32)}
    with pytest.raises(ConfigError, match="make the network smaller"):
        encode(WeightsFile(arrays, Card(policy="marl-dqn", version=1)))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        pytest.param(weights(version=0), "version 0 is below 1", id="version"),
        pytest.param(
            WeightsFile({"l0.b": np.full(4, np.nan, np.float32)}, Card(policy="frag", version=1)), "NaN", id="nan"
        ),
        pytest.param(WeightsFile({CARD: np.zeros(1, np.float32)}, Card(policy="frag", version=1)), "taken", id="name"),
    ],
)
def test_what_would_be_refused_is_not_written(file, message):
    with pytest.raises(ConfigError, match=message):
        encode(file)


@pytest.mark.parametrize("policy", ["kube-default", "no-such", "../weights", ""])
def test_a_policy_without_shipped_weights_is_refused_by_name(policy):
    with pytest.raises(ConfigError, match="none are shipped"):
        shipped(policy)


def test_every_shipped_file_can_be_used():
    for policy in shipped_names():
        assert shipped(policy).arrays
