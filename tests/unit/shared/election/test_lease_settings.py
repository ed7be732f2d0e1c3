"""Which timers are accepted, and how long a lease may be relied upon."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord, decode_record
from shared.errors import ConfigError


def test_the_defaults_are_those_of_the_promise():
    settings = LeaseSettings()
    assert (settings.lease_ttl_s, settings.renew_every_s) == (3, 1.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lease_ttl_s": 0}, "lease_ttl_s"),
        ({"lease_ttl_s": 601}, "lease_ttl_s"),
        ({"renew_deadline_s": 2.9}, "renew_deadline_s"),
        ({"renew_every_s": 2.1}, "renew_every_s"),
        ({"call_timeout_s": 1.3}, "call_timeout_s"),
        ({"clock_rate_bound": 0.3}, "renew_deadline_s"),
        ({"clock_rate_bound": 0.6}, "clock_rate_bound"),
        ({"retry_s": 0.0}, "retry_s"),
    ],
)
def test_timers_that_do_not_fit_are_named(change, named):
    with pytest.raises(ConfigError, match=named):
        LeaseSettings(**change)


@given(ttl_s=st.integers(1, 600))
def test_the_default_proportions_fit_every_ttl(ttl_s):
    LeaseSettings.for_ttl(ttl_s)


@given(sent_at=st.floats(0, 1e6), granted_s=st.floats(1, 100))
def test_validity_ends_before_the_lease_can(sent_at, granted_s):
    settings = LeaseSettings()
    until = settings.valid_until(sent_at=sent_at, ttl_s=granted_s)
    slow, fast = 1 - settings.clock_rate_bound, 1 + settings.clock_rate_bound
    # True seconds until a holder with the slowest clock stops, and until etcd with the fastest ends the lease.
    assert (until - sent_at) / slow <= min(granted_s, 3) / fast or granted_s < settings.lease_ttl_s


def test_a_record_survives_the_wire_and_unknown_fields_are_ignored():
    record = LeaderRecord(identity="host-1", incarnation="x", url="http://host-1:8080")
    assert decode_record(record.encode()) == record
    assert decode_record(b'{"identity":"a","incarnation":"b","later":1}') == LeaderRecord(identity="a", incarnation="b")


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"\xff\xfe", b"null", b'{"identity":1,"incarnation":"x"}', b"[" * 10_000]
)
def test_a_value_that_is_no_record_is_nobody(value):
    assert decode_record(value) is None
