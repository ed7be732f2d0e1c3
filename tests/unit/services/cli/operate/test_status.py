"""What etcd says of a mesh, as ``conclave status`` shows it."""

from __future__ import annotations

import re
from pathlib import Path

from services.cli.etcd import mesh_of
from services.cli.local.mesh import MeshSettings, mesh_specs, write_tokens
from services.cli.operate.status import registered_lines
from shared.election.record import LeaderRecord
from shared.ports import KeyValue
from shared.wire.keys import Keys
from shared.wire.records import AgentRecord, encode_record

KEYS = Keys()


def kv(key: str, value: bytes, revision: int = 5) -> KeyValue:
    return KeyValue(key, value, revision, revision, 0xABC)


def view():
    leader = LeaderRecord(identity="coordinator-0", incarnation="i1", url="http://127.0.0.1:1").encode()
    binder = LeaderRecord(identity="binder-1", incarnation="i2").encode()
    agent = encode_record(AgentRecord(id="agent-0", url="http://127.0.0.1:2", incarnation="i3"))
    items = [
        kv(KEYS.coordinator_leader, leader, 7),
        kv(KEYS.binder_leader("0"), binder, 8),
        kv(KEYS.agent("agent-0"), agent),
        kv(KEYS.agent("broken"), b"{"),
        kv(KEYS.intent("u1"), b"{}"),
        kv(KEYS.member("learner", "l0"), b"here"),
    ]
    return mesh_of(items, 99, KEYS)


def test_leaders_terms_agents_and_intents_are_read():
    found = view()
    assert found.coordinator is not None
    assert (found.coordinator.record.identity, found.coordinator.term) == ("coordinator-0", 7)
    assert found.binders["0"].term == 8
    assert list(found.agents) == ["agent-0"]
    assert (found.intents, found.revision) == (1, 99)


def test_the_table_and_the_json_say_the_same():
    text = "\n".join(registered_lines(view()))
    for word in ("coordinator-0", "binder-1", "agent-0", "learner/l0", "1 intents"):
        assert word in text
    assert view().to_json()["coordinator"]["lease_id"] == "abc"


def test_an_empty_etcd_shows_that_nobody_leads():
    text = "\n".join(registered_lines(mesh_of([], 1, KEYS)))
    assert text.count("nobody leads") == 2


def test_a_mesh_is_one_process_per_place_with_a_token_only_we_can_read(tmp_path):
    settings = MeshSettings(
        etcd="http://127.0.0.1:1", etcd_prefix="/c/", kubeconfig=tmp_path / "k", state_dir=tmp_path / "s", agents=3
    )
    specs = mesh_specs(settings)
    assert [s.name for s in specs if s.service == "agent"] == ["agent-0", "agent-1", "agent-2"]
    assert len({s.name for s in specs}) == len(specs) == 7
    assert all("--kubeconfig" not in s.argv for s in specs if s.service == "agent")
    settings.state_dir.mkdir()
    for left_behind in (settings.token_file, settings.admin_token_file):
        left_behind.touch(mode=0o644)
    write_tokens(settings)
    assert settings.token_file.stat().st_mode & 0o077 == 0
    assert len(settings.token_file.read_text().strip()) == 64
    assert settings.admin_token_file.stat().st_mode & 0o077 == 0
    admin = [line.split() for line in settings.admin_token_file.read_text().splitlines()]
    assert [(role, name) for _, role, name in admin] == [(r, "local") for r in ("admin", "operator", "viewer")]
    assert len({token for token, _, _ in admin}) == 3
    for spec in specs:
        assert ("--admin-listen" in spec.argv) is (spec.service == "coordinator")


def test_the_first_clusters_page_finds_any_process_that_it_says_to_kill(tmp_path):
    page = (Path(__file__).parents[5] / "docs" / "first-cluster.md").read_text()
    (pattern,) = re.findall(r'pgrep -f "(services\.coordinator --id \$LEADER [^"]+)"', page)
    settings = MeshSettings(
        etcd="http://127.0.0.1:1", etcd_prefix="/c/", kubeconfig=tmp_path / "k", state_dir=tmp_path / "mesh"
    )
    for spec in mesh_specs(settings):
        wanted = pattern.replace("services.coordinator", f"services.{spec.service}")
        wanted = wanted.replace("$LEADER", spec.name).replace("$PWD", str(tmp_path))
        assert re.search(wanted, " ".join(spec.argv)), spec.name
