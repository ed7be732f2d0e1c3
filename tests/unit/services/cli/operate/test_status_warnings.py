"""What ``conclave status`` warns of: versions, foreign ids, mixed TLS, and what processes say of themselves."""

from __future__ import annotations

import msgspec

from services.cli.etcd import MeshView, mesh_of, warnings_of
from services.cli.operate.status import registered_lines
from shared.election.record import LeaderRecord
from shared.ports import KeyValue
from shared.wire.keys import Keys
from shared.wire.records import AgentRecord, MemberRecord, encode_record

KEYS = Keys()


def kv(key: str, value: bytes) -> KeyValue:
    return KeyValue(key=key, value=value, create_revision=1, mod_revision=1)


def agent(name: str, key: str = "", **fields: object) -> KeyValue:
    record = AgentRecord(id=name, url="http://10.0.0.1:1", incarnation="i", version="0.1.0")
    return kv(KEYS.agent(key or name), encode_record(msgspec.structs.replace(record, **fields)))


def leader(version: str = "0.1.0") -> KeyValue:
    record = LeaderRecord(identity="c-0", incarnation="i", url="http://10.0.0.2:1", version=version)
    return kv(KEYS.coordinator_leader, record.encode())


def view(*items: KeyValue) -> MeshView:
    return mesh_of(items, 7, KEYS)


def test_a_mesh_of_one_version_has_no_warnings():
    standby = MemberRecord(id="c-1", url="http://10.0.0.3:1", incarnation="i", version="0.1.0")
    assert (
        warnings_of(view(leader(), agent("a-0"), kv(KEYS.member("coordinator", "c-1"), encode_record(standby)))) == []
    )


def test_a_prefix_where_nobody_is_registered_is_questioned():
    assert warnings_of(view()) == [
        "nobody is registered under this prefix of etcd: start the mesh, or correct --etcd-prefix"
    ]


def test_another_minor_version_is_shown_and_another_major_one_is_refused():
    found = warnings_of(view(leader(), agent("a-0", version="0.2.0"), agent("a-1", version="1.0.0"), agent("a-2")))
    assert found == [
        "agent a-0: runs 0.2.0, the mesh 0.1.0: an upgrade under way?",
        "agent a-1: runs 1.0.0, the mesh 0.1.0: it is refused; run one major version",
    ]


def test_a_process_from_before_versions_were_told_is_taken_as_it_is():
    assert warnings_of(view(leader(""), agent("a-0", version=""), agent("a-1"))) == []


def test_an_agent_that_registers_anothers_id_is_told_and_does_not_replace_it():
    seen = view(leader(), agent("a-0"), agent("a-0", key="a-9", url="http://evil:1"))
    assert seen.agents["a-0"].url == "http://10.0.0.1:1"
    assert warnings_of(seen) == [
        "agent a-9: registers as 'a-0', which is another's id: ignored; give each agent its own --id"
    ]


def test_what_a_process_says_of_itself_is_one_line_whatever_is_in_it():
    told = "certificate x: expired\nbinder: fine"
    member = MemberRecord(id="b", url="https://b:1", incarnation="i", warnings=(told,))
    lines = registered_lines(view(leader(), kv(KEYS.member("binder", "b"), encode_record(member))))
    assert lines[-1].startswith("warning: ")
    assert "warning: binder b: certificate x: expired binder: fine" in lines


def test_tls_beside_no_tls_is_told_as_a_wrong_overlay():
    found = warnings_of(view(leader(), agent("a-0"), agent("a-1", url="https://10.0.0.5:1")))
    assert found == ["agent a-0: listens without TLS, others with it: they refuse each other; use one overlay for all"]


def test_another_protocol_is_told():
    assert warnings_of(view(agent("a-0", protocol=2))) == [
        "agent a-0: speaks protocol 2, this is 1: ignored; run one version"
    ]
