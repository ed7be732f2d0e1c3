"""Loads: brought to 40 to 80 % of capacity, the same for a seed; a file that is no trace is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest

from lab.worlds.services.loads import constant, drawn, of_trace, parse_trace
from shared.errors import ConfigError


def test_a_load_is_brought_to_its_shares_of_capacity():
    rates = drawn(240.0, 1800, 7)
    assert np.percentile(rates, 5) == pytest.approx(96.0)
    assert np.percentile(rates, 95) == pytest.approx(192.0)
    assert constant(240.0, 5) == pytest.approx(144.0)
    assert (drawn(240.0, 1800, 7) == rates).all()
    assert (drawn(240.0, 1800, 8) != rates).any()


def test_one_number_a_line_is_a_rate_each_second():
    trace = parse_trace("requests\n3\n4\n5\n")
    assert trace.rates.tolist() == [3, 4, 5]
    assert trace.step_s == 1.0


def test_a_column_of_minutes_is_read_as_such_and_long_steps_are_shortened():
    trace = parse_trace("minute_index,requests\n0,10\n1,20\n2,30\n")
    assert trace.told_s == 60.0
    assert trace.step_s == 10.0


def test_dates_are_read_and_gaps_are_filled_by_a_line():
    trace = parse_trace(
        "timestamp,value\n2014-04-10 00:04:00,94.0\n2014-04-10 00:09:00,56.0\n2014-04-10 00:19:00,76.0\n"
    )
    assert trace.told_s == pytest.approx(450.0)
    assert trace.rates.tolist()[0] == 94.0


def test_rows_of_requests_are_counted_by_the_second():
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
        f"2023-11-16 18:17:{second:02d}.9799600,{tokens},1\n" for second, tokens in ((3, 5), (3, 6), (5, 7))
    )
    assert parse_trace(text).rates.tolist() == [2, 0, 1]


def test_a_short_trace_begins_anew_and_a_seed_chooses_the_stretch():
    trace = parse_trace("\n".join(str(value % 37) for value in range(200)))
    assert len(of_trace(trace, 100.0, 500, 1)) == 500
    assert (of_trace(trace, 100.0, 60, 1) != of_trace(trace, 100.0, 60, 2)).any()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("1\nnan\n3", "line 2, column 1: nan is negative or not finite", id="nan"),
        pytest.param("1\n-2\n3", "line 2, column 1: -2 is negative", id="negative"),
        pytest.param("1\ntwo\n3", "line 2, column 1: 'two' is no number", id="word"),
        pytest.param("0,1\n5,2\n3,4", "line 3, column 1: 3 is not after the line before", id="back"),
        pytest.param("0,1\n5,2\n5,4", "line 3, column 1: 5 is not after the line before", id="same time"),
        pytest.param("0,1\n5", "line 2: 1 columns, the first row has 2", id="columns"),
        pytest.param("inf,1\n5,2", "line 1, column 1: inf is not finite", id="time"),
        pytest.param("", "no line with a number", id="empty"),
        pytest.param("7", "1 rows are too few", id="one"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_line_and_column(text, told):
    with pytest.raises(ConfigError, match=told):
        parse_trace(text, "rates.csv")
