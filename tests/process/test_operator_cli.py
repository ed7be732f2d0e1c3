"""Every operator's command against a real mesh: what it shows, what it changes, and what the roles may not."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, aclosing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from services.cli.__main__ import run
from services.cli.etcd import mesh_of
from services.cli.local.up_run import write_local
from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.runtime.records.prefix_watch import follow_prefix
from shared.wire.keys import Keys
from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd]

T = TypeVar("T")

KEYS = Keys()
TOKENS = {role: f"the-token-of-the-{role}" for role in ("admin", "operator", "viewer")}


@dataclass
class Operated:
    """A mesh with an admin API, in a loop of its own thread, and a folder with a context for whoever leads."""

    mesh: Mesh
    folder: Path
    store: EtcdStore
    loop: asyncio.AbstractEventLoop

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something of the mesh."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def conclave(self, *arguments: str) -> tuple[int, str, str]:
        """(exit code, stdout, stderr)."""
        out, error = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(error):
            code = run(list(arguments))
        said, complained = (stream.buffer.getvalue().decode() for stream in (out, error))
        return code, said, complained

    def done(self, *arguments: str) -> str:
        """What a command prints that must do as it is told."""
        code, out, error = self.conclave(*arguments)
        assert code == 0, (arguments, error)
        return out

    def found(self, *arguments: str) -> Any:
        """As ``done``, with -o json; of a list its items."""
        answer = json.loads(self.done(*arguments, "-o", "json"))
        return answer["items"] if str(answer.get("kind")).endswith("List") else answer

    def refused(self, *arguments: str) -> str:
        code, out, error = self.conclave(*arguments)
        assert (code, out) == (2, ""), error
        assert len(error.splitlines()) == 1
        return error


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory, loop: asyncio.AbstractEventLoop) -> Iterator[Operated]:
    """One mesh for all tests here: starting it takes longer than they do."""
    folder = tmp_path_factory.mktemp("operated")
    opened = AsyncExitStack()
    found = asyncio.run_coroutine_threadsafe(_operated(folder, opened), loop).result(PATIENCE_S)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONCLAVE_CONTEXTS", str(folder / "contexts.toml"))
        for name in ("CONCLAVE_SERVER", "CONCLAVE_TOKEN_FILE"):
            patch.delenv(name, raising=False)
        yield found
    found.do(opened.aclose())


async def _operated(folder: Path, opened: AsyncExitStack) -> Operated:
    tokens = folder / "admin-tokens"
    tokens.touch(mode=0o600)
    tokens.write_text("".join(f"{token} {role} ann\n" for role, token in TOKENS.items()))
    for role, token in TOKENS.items():
        (folder / role).write_text(f"{token}\n")
    flags = {"coordinator": ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(tokens)]}
    mesh = await opened.enter_async_context(Mesh(folder, flags=flags))
    store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
    opened.push_async_callback(store.close)
    await mesh.leader()
    await _name_the_leader(folder, store, besides="")
    await mesh.add_nodes(3)
    for name in ("web-0", "web-1"):
        await mesh.add_pod(name)
    await mesh.add_pod("big", cpu="9")
    await mesh.wait_bound({"web-0", "web-1"})
    return Operated(mesh, folder, store, asyncio.get_running_loop())


def test_what_runs_is_shown_to_people_and_to_scripts(operated: Operated) -> None:
    status = operated.found("status")
    leader = status["overview"]["leader"]["id"]
    assert {m["id"] for m in status["members"] if m["leading"]} >= {leader}
    assert f"leader      {leader}, term " in operated.done("status")
    assert "coordinator-" in operated.done("status", "--etcd", operated.mesh.etcd.endpoint)

    nodes = operated.found("nodes")
    assert [node["name"] for node in nodes] == ["node-0", "node-1", "node-2"]
    assert sum(node["pods"] for node in nodes) == 2
    mine = operated.found("nodes", "--agent", nodes[0]["agent"])
    assert {node["agent"] for node in mine} == {nodes[0]["agent"]}
    table = operated.done("nodes", "-o", "wide").splitlines()
    assert len(table) == 4
    full = next(node["name"] for node in nodes if node["pods"])
    assert operated.found("nodes", full)["pods"][0]["ours"] is True

    while not (queue := operated.found("pending-pods", "--place", "unschedulable")):
        pass
    assert queue[0]["name"] == "big"
    assert [pod["uid"] for pod in operated.found("pending-pods", "-n", "default")] == [queue[0]["uid"]]
    assert operated.found("pending-pods", "-n", "elsewhere") == []
    assert operated.found("pending-pods", "-l", "app=none") == []
    assert operated.done("pending-pods", "-l", "!app", "-o", "name") == "pod/big\n"
    assert "selector" not in operated.refused("pending-pods", "-l", "app in (")
    assert "NodeResourcesFit" in operated.done("pending-pods")
    assert operated.done("units") == "there is no pod group, and no lone pod is on its way\n"
    assert {one["name"] for one in operated.found("decisions")} == {"web-0", "web-1"}
    assert "NodeResourcesFit" in operated.done("explain", "default/big")
    assert operated.found("explain", "default/web-0")["state"] == "bound"
    assert operated.found("explain", "web-0", "-n", "default")["state"] == "bound"
    assert {member["service"] for member in operated.found("members")} >= {"coordinator", "agent"}
    by_pods = operated.found("nodes", "--sort-by", ".pods")
    assert [node["pods"] for node in by_pods] == sorted(node["pods"] for node in nodes)
    assert operated.conclave("explain", "default/none") == (
        1, "", "conclave: there is no pod default/none: it is gone, or was never created\n",
    )  # fmt: skip
    shown = operated.done("top", "--count", "1")
    assert "NODES BY CPU" in shown
    assert "web-0" in shown
    assert "\x1b" not in shown


def test_a_snapshot_of_a_live_mesh_is_replayed_and_asked_what_if(operated: Operated) -> None:
    file, names_file = operated.folder / "cluster.snap", operated.folder / "names.json"
    cluster = ("--kubeconfig", str(operated.mesh.kubeconfig))
    said = operated.done("snapshot", str(file), *cluster, "--names-file", str(names_file))
    assert f"{file}: 3 nodes, " in said
    names = json.loads(names_file.read_text())
    assert (file.stat().st_mode & 0o777, names_file.stat().st_mode & 0o777) == (0o600, 0o600)
    text = gzip.decompress(file.read_bytes()).decode()
    assert not [name for name in ("web-0", "big", "node-0") if f'"{name}"' in text]
    big = f"default/{names['big']}"
    found = operated.found("replay", str(file), "--again", "500")
    assert "Insufficient cpu" in found["waiting"][big]
    assert {one["pod"] for one in found["compared"]} >= {f"default/{names[name]}" for name in ("web-0", "web-1")}
    assert all(one["same"] or one["tied"] for one in found["compared"])
    assert "Insufficient cpu" in operated.done("replay", str(file), "--explain", big)
    assert "the leader decided at" in operated.done("replay", str(file), "--explain", f"default/{names['web-0']}")
    if_cordoned = operated.found("replay", str(file), "--cordon", names["node-0"], "--again", "500")
    assert names["node-0"] not in {one["node"] for one in if_cordoned["after"]["compared"]}
    alone = operated.folder / "alone.snap"
    operated.done("snapshot", str(alone), *cluster, "--no-mesh", "--names")
    assert operated.found("replay", str(alone))["waiting"].keys() == {"default/big"}
    assert "no mesh was asked" in operated.done("replay", str(alone))

    assert "the file is cut; take the snapshot again" in _refused_file(operated, file.read_bytes()[:-20])
    assert "no gzip file; give a file of 'conclave snapshot'" in _refused_file(operated, b"{}")
    other = json.dumps(json.loads(text) | {"snapshot": 9, "conclave": "7.0.0"}).encode()
    assert "format 9 is not 1, which this version reads; use conclave 7.0.0" in _refused_file(
        operated, gzip.compress(other)
    )
    assert "--add: 'a=0' is not NODE=COUNT" in operated.refused("replay", str(file), "--add", "a=0")


def _refused_file(operated: Operated, data: bytes) -> str:
    file = operated.folder / "broken.snap"
    file.write_bytes(data)
    return operated.refused("replay", str(file))


def test_pausing_and_draining_stop_new_pods_until_resumed(operated: Operated) -> None:
    mesh = operated.mesh
    assert "paused by admin:ann" in operated.done("pause", "--reason", "upgrade")
    while "upgrade" not in operated.done("status"):
        pass  # the leader follows etcd, and an overview is made four times a second at most
    operated.do(mesh.add_pod("later"))
    while not operated.found("pending-pods", "--place", "active"):
        pass
    assert operated.done("resume") == "scheduling is on\n"
    operated.do(mesh.wait_bound({"later"}))

    done = operated.found("drain", "node-0", "node-1", "--reason", "disk")
    assert [(node["name"], node["drained"]["reason"]) for node in done] == [("node-0", "disk"), ("node-1", "disk")]
    while len(operated.found("nodes", "--drained")) != 2:
        pass
    operated.do(mesh.add_pod("elsewhere"))
    operated.do(mesh.wait_bound({"elsewhere"}))
    (placed,) = (pod for pod in operated.do(mesh.pods()) if pod["metadata"]["name"] == "elsewhere")
    assert placed["spec"]["nodeName"] == "node-2"
    code, out, error = operated.conclave("resume", "node-0", "nowhere", "node-1")
    assert (code, out) == (2, "node-0: takes pods\nnode-1: takes pods\n")
    assert "nowhere" in error
    while operated.found("nodes", "--drained"):
        pass
    routes = [change["route"] for change in operated.found("changes")]
    assert routes.count("POST /v1/nodes/{name}/drain") == 2
    assert "POST /v1/scheduling/pause" in routes


def test_settings_change_as_a_whole_and_keep_a_history(operated: Operated) -> None:
    before = operated.found("settings", "get", "batch_units")
    told = operated.done("settings", "set", "batch-units=31", "log_level=warning", "--reason", "quiet")
    assert "batch_units = 31 (runtime)" in told
    number = json.loads(operated.done("settings", "-o", "json"))["number"]
    assert "0 cannot be used" in operated.refused("settings", "set", "log_level=info", "batch_units=0")
    assert "did you mean batch_units" in operated.refused("settings", "set", "batch_unit=3")
    assert "is no integer; give 1 to" in operated.refused("settings", "set", "batch_units=many")
    stale = str(number - 1)
    assert "read them again" in operated.refused("settings", "set", "batch_units=9", "--if-number", stale)
    after = {item["name"]: item["value"] for item in operated.found("settings")}
    assert (after["batch_units"], after["log_level"]) == (31, "warning")
    operated.done("settings", "unset", "batch_units", "log_level")
    assert operated.found("settings", "get", "batch_units")["value"] == before["value"]
    assert operated.found("settings", "history")[1]["reason"] == "quiet"
    assert operated.done("log-level", "debug") == "debug\n"
    assert operated.done("log-level", "info") == "info\n"
    assert operated.found("log-level")["level"] == "info"


def test_policies_go_into_shadow_and_back(operated: Operated) -> None:
    rows = operated.found("policy", "list")
    assert {row["name"] for row in rows} >= {"kube-default", "random", "marl-dqn"}
    shadow = operated.done("policy", "activate", "best-fit", "--stage", "shadow", "--reason", "try it")
    assert "candidate  best-fit@1, shadow" in shadow
    shown = operated.done("policy", "show")
    assert "next       canary 1 % when you promote it" in shown
    assert "next       withdrawn by itself: 3 bad windows" in shown
    assert "compared   by the goal gpus (higher is better): 0 windows" in shown
    assert "best-fit@1 has 0 of 3 good windows in a row" in operated.refused("policy", "promote", "best-fit")
    forced = operated.done("policy", "promote", "best-fit", "--force")
    assert "candidate  best-fit@1, canary for 1 % of the pods" in forced
    assert "forced: without the windows asked for" in forced
    assert "random is not the candidate; best-fit@1 is" in operated.refused("policy", "promote", "random")
    auto = operated.done("policy", "activate", "best-fit", "--percent", "10", "--auto", "--goal", "packing")
    assert "promoted   by itself after good windows; compared by the goal packing" in auto
    assert "next       canary 50 % by itself: 3 good windows" in operated.done("policy", "show")
    card = operated.found("policy", "show", "marl-dqn")
    assert card["policy"] == "marl-dqn"
    assert "crystal-ball" in operated.refused("policy", "show", "crystal-ball")
    assert "candidate" not in operated.done("policy", "rollback")
    assert "crystal-ball" in operated.refused("policy", "activate", "crystal-ball")
    weights = ("policy", "activate", "marl-dqn", "--weights", "/nowhere")
    assert "/nowhere: No such file" in operated.refused(*weights)


def test_a_dump_is_whole_compressed_and_for_its_owner_alone(operated: Operated) -> None:
    file = operated.folder / "dump.json.gz"
    assert str(file) in operated.done("dump", "--check", "--out", str(file))
    assert file.stat().st_mode & 0o077 == 0
    document = json.loads(gzip.decompress(file.read_bytes()))
    assert {"versions", "settings", "members", "queue", "nodes"} <= set(document)
    assert document["check"] == []
    assert not any(token in json.dumps(document) for token in TOKENS.values())
    assert json.loads(operated.done("dump", "--out", "-"))["id"] == document["id"]
    assert "/nowhere" in operated.refused("dump", "--out", "/nowhere/dump.json")
    assert not list(operated.folder.glob("*.partial"))


def test_a_role_may_do_no_more_than_it_says(operated: Operated) -> None:
    viewer = ("--token-file", str(operated.folder / "viewer"))
    operator = ("--token-file", str(operated.folder / "operator"))
    operated.done("nodes", *viewer)
    assert "higher role" in operated.refused("pause", *viewer)
    assert "higher role" in operated.refused("settings", "set", "batch_units=9", *operator)
    assert "higher role" in operated.refused("dump", "--out", str(operated.folder / "d"), *operator)
    assert not (operated.folder / "d").exists()
    (operated.folder / "wrong").write_text("a-token-of-nobody-at-all\n")
    assert "--token-file" in operated.refused("nodes", "--token-file", str(operated.folder / "wrong"))


def test_following_survives_the_leaders_death(operated: Operated) -> None:
    """``decisions --watch`` finds the next leader through the context, which is read again for each try."""
    operated.do(_follow(operated))
    assert len(operated.found("status")["terms"]) >= 2


async def _name_the_leader(folder: Path, store: EtcdStore, *, besides: str) -> str:
    """Write a context for whoever leads and is not at ``besides``; the address."""
    async with aclosing(follow_prefix(store, KEYS.coordinator_leader)) as views:
        async for view in views:
            leading = mesh_of(tuple(view.items.values()), view.revision, KEYS).coordinator
            url = leading.record.admin_url if leading is not None else ""
            if url and url != besides:
                write_local(folder, [int(url.rpartition(":")[2])], folder / "admin-tokens")
                return url
    raise AssertionError("unreachable")


async def _follow(operated: Operated) -> None:
    mesh = operated.mesh
    led = await _name_the_leader(operated.folder, operated.store, besides="")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "decisions", "--watch", "-o", "json", cwd=ROOT, env=os.environ,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert b" leads, term " in await process.stderr.readline()
        await mesh.add_pod("before")
        assert json.loads(await process.stdout.readline())["name"] == "before"
        mesh.kill(await mesh.leader())
        await _name_the_leader(operated.folder, operated.store, besides=led)
        while b" leads, term " not in await process.stderr.readline():
            pass
        await mesh.add_pod("after")
        assert json.loads(await process.stdout.readline())["name"] == "after"
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
