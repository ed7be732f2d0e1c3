"""Series as CSV: what was seen comes back, and what cannot be used is one line that names place and remedy."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from lab.worlds.learned.series import HEADER, Writer, episode_of, parse_series
from shared.autoscaling.observation import Bounds, ScalingObservation, ServiceObservation
from shared.errors import ConfigError


def seen(now: float, *, replicas: int = 3, arrivals: float | None = 50.0) -> ScalingObservation:
    def one(ready: int) -> ServiceObservation:
        return ServiceObservation(
            replicas=replicas, ready=ready, starting=replicas - ready, bounds=Bounds(1, 5), requests={"cpu": 0.5},
            usage={"cpu": 0.25}, arrivals=arrivals, served=40.0, failed=2.0, queue=0.0, latency_s=0.1, age_s=4.0,
        )  # fmt: skip

    return ScalingObservation(
        now=now, services={"a": one(3), "b": one(2)}, calls=(("a", "b"),), latency_objective_s=0.5
    )


def text(*moments: ScalingObservation, scenario: str = "calm", episode: str = "1") -> str:
    writer = Writer()
    writer.header()
    for moment in moments:
        writer.moment(scenario, episode, moment)
    return writer.take()


def parsed(content: str, **given):
    return parse_series(content.encode(), "s.csv", **given)


def test_what_was_written_is_read_back_and_a_missing_reading_stays_missing():
    moments = [seen(0.0, arrivals=None), seen(10.0), seen(20.0, replicas=4)]
    found = parsed(text(*moments))
    assert (found.services, found.step_s, found.transitions, found.scenarios) == (("a", "b"), 10.0, 2, ("calm",))
    wanted = episode_of(moments, ("a", "b"), scenario="calm", name="1")
    np.testing.assert_array_equal(found.episodes[0].counts, wanted.counts)
    np.testing.assert_allclose(found.episodes[0].measures, wanted.measures)
    assert np.isnan(found.episodes[0].measures[0, 0, 0])
    assert found.episodes[0].measures[0, 0, 3] == 0.0  # an empty queue is no missing one


def test_a_packed_file_is_read_and_services_come_in_the_order_of_the_graph():
    data = gzip.compress(text(seen(0.0), seen(10.0)).encode())
    found = parse_series(data, "s.csv.gz", services=("b", "a"))
    assert found.services == ("b", "a")
    assert found.episodes[0].counts[0, 0, 1] == 2


def test_a_gap_and_a_moment_that_lacks_a_service_divide_a_stretch():
    lines = text(*(seen(float(at)) for at in (0, 10, 20, 100, 110, 120, 130))).splitlines()
    lines = [line for line in lines if not (line.startswith("calm,1,120") and ",b," in line)]
    found = parsed("\n".join(lines) + "\n")
    assert [len(one.counts) for one in found.episodes] == [3, 2]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (",latency_s,", ",wait,", "columns missing: latency_s"),
        (",50,", ",nan,", "line 2: arrivals: 'nan' is not 0 or more"),
        (",50,", ",-1,", "leave the cell of a missing reading empty"),
        (",50,", ",inf,", "line 2: arrivals"),
        (",50,", ",many,", "'many' is no number"),
        (",a,3,", ",a,2.5,", "replicas: '2.5' is no whole number"),
        (",a,3,", ",a,99999999,", "more than 10000 pods"),
        (",a,3,", ",,3,", "service: it is empty"),
        ("calm,1,0.000,b", "calm,1,0.000,a", "service 'a' comes twice at 0 s"),
        ("calm,1,0.000,a,3", "calm,1,0.000,a", "cells, the header has"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_the_place(old: str, new: str, words: str):
    content = text(seen(0.0), seen(10.0)).replace(old, new, 1)
    with pytest.raises(ConfigError, match=r"s\.csv") as error:
        parsed(content)
    assert words in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "columns missing"),
        ((",".join(HEADER) + "\n").encode(), "no rows"),
        (b"\xff\xfe", "not UTF-8"),
        (b"\x1f\x8bnothing", "cannot be unpacked"),
    ],
    ids=["empty", "no rows", "no text", "broken gzip"],
)
def test_a_file_that_is_none_is_refused(data: bytes, words: str):
    with pytest.raises(ConfigError, match=words):
        parse_series(data, "s.csv")


def test_series_of_another_graph_are_refused_with_both_names():
    with pytest.raises(ConfigError, match=r"of services a, b, the graph has a, c; give this graph's series"):
        parsed(text(seen(0.0), seen(10.0)), services=("a", "c"))


def test_one_moment_alone_is_nothing_to_learn_from():
    with pytest.raises(ConfigError, match="no two moments follow each other"):
        parsed(text(seen(0.0)))
