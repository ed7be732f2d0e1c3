"""``conclave policy``: the pointer, its windows and changes as people read them, and what is refused before asking."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from services.cli.__main__ import run
from shared.policy.weights import MAX_BYTES, digest, shipped_bytes
from tests.admin_server import AdminServer

OLD, NEW = ({"name": name, "version": 1, "sha256": sha256} for name, sha256 in (("kube-default", ""), ("lb", "a" * 64)))
POINTER: dict[str, Any] = {
    "active": OLD, "previous": None, "candidate": NEW, "stage": "canary", "percent": 10, "number": 2,
    "reason": "try it", "by": "ann", "promotion": "auto", "goal": "packing",
}  # fmt: skip
FIRST = {**POINTER, "candidate": None, "stage": "active", "percent": 0, "number": 1, "reason": "", "by": ""}
WINDOW: dict[str, Any] = {
    "number": 5, "time": "2026-11-22T02:00:00Z", "active": "kube-default@1", "candidate": "lb@1", "stage": "canary",
    "percent": 10, "samples": 40, "agreed": 30, "verdict": "bad", "why": "value",
    "values": [
        {"goal": "packing", "active": 0.5, "candidate": 0.4}, {"goal": "neutral", "active": 0.25, "candidate": None},
    ],
    "conduct": {"p99_ms": 2.5, "active_p99_ms": 1.5},
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "GET /v1/policies": {"pointer": POINTER, "items": [], "comparison": {}},
    "GET /v1/policies/windows": {"items": [WINDOW]},
    "GET /v1/policies/history": {
        "items": [
            {"at": "2026-11-22T02:00:00+00:00", "pointer": POINTER},
            {"at": "2026-11-21T02:00:00Z", "pointer": FIRST},
        ]
    },
}


def shown(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    with AdminServer(ANSWERS) as server:
        assert run(["policy", "show", "--server", server.url, *options]) == 0
    return capsys.readouterr().out


def test_the_pointer_its_windows_and_its_changes_are_shown_with_times_in_utc(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = shown(capsys).splitlines()
    assert lines[:4] == [
        "active     kube-default@1",
        "candidate  lb@1 (aaaaaaaaaaaa), canary for 10 % of the pods",
        "promoted   by itself after good windows; compared by the goal packing (higher is better)",
        "because    try it (by ann)",
    ]
    (window,) = (line.split() for line in lines if line.startswith("2026-11-22T02:00:00Z  lb@1"))
    assert window[2:] == ["canary", "10", "%", "40", "75%", "packing", "0.400", "0.500", "-", "0.250", "bad:", "value"]
    assert [line.split() for line in lines[-2:]] == [
        ["2026-11-22T02:00:00Z", "kube-default@1", "lb@1", "canary", "10", "%", "try", "it", "(by", "ann)"],
        ["2026-11-21T02:00:00Z", "kube-default@1", "-", "active", "first"],
    ]
    assert "+00:00" not in "\n".join(lines)


def test_wide_has_numbers_digests_and_latencies_too(capsys: pytest.CaptureFixture[str]) -> None:
    wide, narrow = shown(capsys, "-o", "wide"), shown(capsys)
    for title in ("SHA256", "NUMBER", "ACTIVE-P99-MS"):
        assert title in wide
        assert title not in narrow
    assert wide.splitlines()[-2].split()[-2:] == ["2", "a" * 64]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("promote", "random", "--to", "active", "--percent", "5"), "--percent: belongs to the canary"),
        (("try", "lb", "--weights", "nowhere.npz"), "--weights: nowhere.npz: No such file or directory"),
        (("try", "nowhere.npz"), "FILE: nowhere.npz: No such file or directory"),
        (("try", "./nowhere"), "FILE: nowhere: No such file or directory"),
        (("try", "nowhere.npz", "--weights", "w.npz"), "--weights: NAME is a file already, nowhere.npz"),
        (("activate", "random", "--new-mesh"), "--new-mesh: a server's mesh runs already; give --etcd"),
    ],
)
def test_what_cannot_be_is_refused_before_anybody_is_asked(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with AdminServer({}) as server:
        assert run(["policy", *arguments, "--server", server.url]) == 2
        assert server.asked == []
    assert told in capsys.readouterr().err


def test_who_places_in_a_policys_stead_is_shown_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"policy": "frag@2", "sha256": "a" * 64, "places": "fgd", "told": "since it wins"}
    with AdminServer({**ANSWERS, "GET /v1/policies": {"pointer": {**POINTER, "rehearsed": [said]}}}) as server:
        assert run(["policy", "show", "--server", server.url]) == 0
    assert "rehearsed  fgd places for frag@2: since it wins" in capsys.readouterr().out.splitlines()


def test_what_can_be_sampled_and_why_a_window_is_empty_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    why = "in 3 of 3 cycles the goal told no node from another"
    sampling = {"offered": 50, "choosing": 46, "share": 0.92, "lost": {"indifferent": 3}, "why": why}
    with AdminServer({**ANSWERS, "GET /v1/policies": {"pointer": POINTER, "comparison": {"sampling": sampling}}}) as at:
        assert run(["policy", "show", "--server", at.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "sampled    92 % of the pods can be: several nodes were open to 46 of 50 offered lately" in lines
    assert f"           the window lacks samples: {why}" in lines


def test_a_forced_change_is_shown_as_forced(capsys: pytest.CaptureFixture[str]) -> None:
    forced = {**POINTER, "forced": True}
    answers = {"GET /v1/policies": {"pointer": forced}, "GET /v1/policies/history": {"items": [{"pointer": forced}]}}
    with AdminServer({**ANSWERS, **answers}) as server:
        assert run(["policy", "show", "--server", server.url]) == 0
    out = capsys.readouterr().out
    assert out.count("try it (by ann, forced: without the windows asked for)") == 2


def test_a_file_of_weights_is_sent_with_its_digest_under_the_name_on_its_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "training" / "lb"
    folder.mkdir(parents=True)
    data = shipped_bytes("lb")
    (folder / "mine.npz").write_bytes(data)
    answer = {"POST /v1/policies/weights": {"pointer": POINTER}}
    for named in ((str(folder),), (str(folder / "mine.npz"),), ("lb", "--weights", str(folder / "mine.npz"))):
        with AdminServer(answer) as server:
            assert run(["policy", "try", *named, "--reason", "ours", "--server", server.url]) == 0
        (asked,) = server.asked
        assert asked.body == {
            "name": "lb", "stage": "shadow", "reason": "ours", "sha256": digest(data), "data": b64encode(data).decode(),
        }  # fmt: skip
    assert "candidate  lb@1" in capsys.readouterr().out


def test_what_is_no_file_of_weights_is_refused_before_anybody_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two").mkdir()
    for name in ("a.npz", "b.npz", "cut.npz"):
        (tmp_path / "two" / name).write_bytes(shipped_bytes("lb")[:900])
    (tmp_path / "large.npz").write_bytes(bytes(MAX_BYTES + 1))
    for name, told in (
        ("two", "holds 3 weights files (.npz); name one"),
        ("two/cut.npz", "not a readable .npz file"),
        ("large.npz", f"more than {MAX_BYTES} bytes"),
    ):
        with AdminServer({}) as server:
            assert run(["policy", "try", str(tmp_path / name), "--server", server.url]) == 2
            assert server.asked == []
        (line,) = [one for one in capsys.readouterr().err.splitlines() if one]
        assert told in line
