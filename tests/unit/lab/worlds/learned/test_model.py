"""A learned twin's step: what was recorded is looked up, the rest is said by networks; its file is checked whole."""

from __future__ import annotations

import io

import msgspec
import numpy as np
import pytest

from lab.worlds.learned import encoding as code
from lab.worlds.learned.model import HEADER, LearnedTwin, TwinMode, decode, encode
from shared.errors import ConfigError
from tests.learned_twins import lesson, twin_that_says

TOP = (23, 23, 23, 0, 0, 12)


@pytest.fixture(scope="module")
def found():
    return lesson()


@pytest.fixture(scope="module")
def twin(found) -> LearnedTwin:
    return twin_that_says(found, change=0, levels=TOP)


def one_row(found, row: int):
    recorded = found.recorded
    rows = np.array([row])
    return recorded.state.at(rows), recorded.replicas[rows], recorded.loads[rows], recorded.scenario[rows]


def test_a_state_and_action_that_were_recorded_are_followed_by_what_followed(found, twin):
    rng = np.random.default_rng(1)
    row = 20
    state, replicas, loads, scenario = one_row(found, row)
    after, _, looked_up = twin.step(state, replicas, loads, scenario, rng)
    assert looked_up.all()
    np.testing.assert_array_equal(after.counts[0], found.recorded.counts[row])


def test_one_replica_more_was_not_recorded_and_the_networks_answer(found, twin):
    state, replicas, loads, scenario = one_row(found, 20)
    after, _, looked_up = twin.step(state, replicas + 1, loads, scenario, np.random.default_rng(1))
    assert not looked_up.any()
    np.testing.assert_array_equal(after.counts[..., code.READY], code.staying(state, replicas + 1))
    entry = list(twin.entries)
    said = np.delete(after.signals[0, :, code.WELL], [])
    told = found.levels.values[:, code.WELL, TOP[code.WELL]]
    assert all(value in (pytest.approx(level), before) for value, level, before in
               zip(said, told, state.signals[0, :, code.WELL], strict=True))  # fmt: skip
    np.testing.assert_allclose(after.signals[0, entry, code.ARRIVALS], loads[0])


def test_the_networks_alone_look_nothing_up_and_the_table_alone_keeps_what_it_never_saw(found, twin):
    state, replicas, loads, scenario = one_row(found, 20)
    networks = LearnedTwin(twin.header, twin.arrays, mode=TwinMode.NETWORKS)
    assert not networks.step(state, replicas, loads, scenario, np.random.default_rng(1))[2].any()
    table = LearnedTwin(twin.header, twin.arrays, mode=TwinMode.TABLE)
    after, _, _ = table.step(state, replicas + 1, loads, scenario, np.random.default_rng(1))
    kept = ~np.isnan(after.signals[..., code.WELL])
    np.testing.assert_allclose(after.signals[..., code.WELL][kept], state.signals[..., code.WELL][kept])


def test_members_that_agree_have_no_spread_and_those_that_differ_have_one(found, twin):
    state, replicas, loads, scenario = one_row(found, 20)
    assert twin.predict(state, replicas, loads, scenario).spread[0] == pytest.approx(0.0)
    networks = {name: twin.arrays[name].copy() for name in ("l0.w", "l0.b")}
    well = code.CHANGES + code.PENDINGS + code.WELL * code.LEVELS
    networks["l0.b"][1, well : well + code.LEVELS] = 0.0
    networks["l0.b"][1, well] = 50.0  # the second member expects the worst
    differing = found.twin(networks, trained={})
    assert differing.predict(state, replicas, loads, scenario).spread[0] > 0.01


def test_the_same_seed_gives_the_same_step(found, twin):
    state, replicas, loads, scenario = one_row(found, 20)
    flat = found.twin({name: np.zeros_like(twin.arrays[name]) for name in ("l0.w", "l0.b")}, trained={})
    one, two, other = (
        flat.step(state, replicas + 1, loads, scenario, np.random.default_rng(seed))[0] for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(one.signals, two.signals)
    assert (one.signals != other.signals).any()


def test_a_scenario_that_was_not_recorded_is_refused(twin):
    with pytest.raises(ConfigError, match="no series of 'ddos' were recorded, only of calm, mixed"):
        twin.scenario("ddos")


def test_a_file_comes_back_as_it_was(twin):
    again = decode(encode(twin), "t.npz")
    assert again.header == twin.header
    for name, array in twin.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)


def packed(header: bytes, arrays: dict[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    np.savez(out, **{HEADER: np.frombuffer(header, np.uint8)}, **arrays)
    return out.getvalue()


def test_a_file_that_is_damaged_contradicts_itself_or_is_of_another_version_is_one_line(twin):
    header = msgspec.json.encode(twin.header)
    arrays = dict(twin.arrays)
    newer = msgspec.json.encode(msgspec.structs.replace(twin.header, schema=99))
    bad = arrays["l0.b"].copy()
    bad[0, 0] = np.nan
    for data, words in (
        (b"no zip", "not a learned twin"),
        (encode(twin)[:-200], "not a learned twin"),
        (packed(b"{}", arrays), "not a learned twin"),
        (packed(newer, arrays), "schema 99 is not 1"),
        (packed(header, {**arrays, "most": np.ones(9)}), "array most is"),
        (packed(header, {name: array for name, array in arrays.items() if name != "edges"}), "array edges is missing"),
        (packed(header, {**arrays, "l0.b": bad}), "no finite number"),
    ):
        with pytest.raises(ConfigError, match=words) as error:
            decode(data, "t.npz")
        assert "train it again" in str(error.value)
        assert len(str(error.value).splitlines()) == 1


def test_an_array_of_objects_is_never_unpickled(twin):
    class Harm:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    out = io.BytesIO()
    np.savez(out, **{HEADER: np.frombuffer(msgspec.json.encode(twin.header), np.uint8)}, keys=np.array([Harm()]))
    with pytest.raises(ConfigError, match="not a learned twin"):
        decode(out.getvalue(), "t.npz")
