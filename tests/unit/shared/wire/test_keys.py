"""Names in etcd: no id can leave its place, and every id comes back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ConfigError
from shared.wire.keys import Keys, escape, unescape

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


def test_the_layout_is_as_documented():
    keys = Keys()
    assert keys.coordinator_leader == "/conclave/v1/coordinator/leader"
    assert keys.binder_leader("0") == "/conclave/v1/binders/0/leader"
    assert keys.agent("agent-1") == "/conclave/v1/agents/agent-1"
    assert keys.member("learner", "x") == "/conclave/v1/members/learner/x"
    assert keys.partitions_current == "/conclave/v1/partitions/current"
    assert keys.intent("default/gang") == "/conclave/v1/intents/default%2Fgang"
    assert keys.policies_active == "/conclave/v1/policies/active"
    assert keys.settings_current == "/conclave/v1/settings/current"
    assert keys.settings_history(3) == "/conclave/v1/settings/history/0000000003"
    assert keys.control_paused == "/conclave/v1/control/paused"
    assert keys.control_drained("n/1") == "/conclave/v1/control/drained/n%2F1"
    assert keys.coordinator_term(7) == "/conclave/v1/coordinator/terms/00000000000000000007"
    assert keys.audit(12) == "/conclave/v1/audit/0000000012"


@given(texts)
def test_any_id_comes_back_and_stays_in_its_place(text):
    key = Keys().agent(text)
    assert Keys().last_part(key) == text
    assert key.startswith(Keys().agents_prefix)
    assert "/" not in key.removeprefix(Keys().agents_prefix)


@given(texts, texts)
def test_different_ids_have_different_keys(one, other):
    assert (escape(one) == escape(other)) == (one == other)


def test_dots_are_no_way_up():
    assert escape("..") == "%2E%2E"
    assert unescape(escape("..")) == ".."


@pytest.mark.parametrize("part", ["", "x" * 513])
def test_empty_and_endless_parts_are_refused(part):
    with pytest.raises(ValueError, match="key part"):
        escape(part)


def test_a_prefix_may_lack_its_last_slash():
    assert Keys.under("/other/v1").agents_prefix == "/other/v1/agents/"


@pytest.mark.parametrize("prefix", ["", "/", "relative/", "/a//b/", "/a\n/"])
def test_a_bad_prefix_is_a_config_error(prefix):
    with pytest.raises(ConfigError, match="CONCLAVE_ETCD_PREFIX"):
        Keys.under(prefix)
