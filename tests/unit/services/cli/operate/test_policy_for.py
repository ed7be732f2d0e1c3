"""``conclave policy --for ...``: one noun and the same verbs for pods, training jobs and scalers."""

from __future__ import annotations

from typing import Any

import pytest

from services.cli.__main__ import run
from services.cli.operate.policy_rollouts import lines_of, rows_of
from shared.jobs.domain import JOBS
from shared.jobs.registry import POLICIES
from tests.admin_server import AdminServer

FOUND: dict[str, Any] = {
    "policy": "elastic", "stage": "canary", "candidate": "marginal", "percent": 10, "good": 2, "ratio": 1.04,
    "sd": 0.02, "by": "operator:ann", "reason": "half a day well in shadow", "since": "2026-11-23T10:00:00.000Z",
}  # fmt: skip
ROUTE = "/v1/jobs/policy"
ANSWERS: dict[str, Any] = {
    f"GET {ROUTE}": FOUND, f"PUT {ROUTE}": FOUND, f"POST {ROUTE}/promote": FOUND, f"POST {ROUTE}/back": FOUND,
}  # fmt: skip


def asked(*arguments: str) -> list[tuple[str, str, Any]]:
    """(method, path, body) of what the server was asked."""
    with AdminServer(ANSWERS) as server:
        assert run([*arguments, "--server", server.url]) == 0
        return [(one.method, one.path, one.body) for one in server.asked]


@pytest.mark.parametrize(
    ("verb", "former", "method", "path", "body"),
    [
        (("try", "drf"), ("set", "drf"), "PUT", ROUTE, {"name": "drf", "reason": "why"}),
        (("promote", "--percent", "25"), ("promote", "--percent", "25"), "POST", f"{ROUTE}/promote",
         {"percent": 25, "force": False, "reason": "why"}),
        (("back",), ("back",), "POST", f"{ROUTE}/back", {"reason": "why"}),
    ],
)  # fmt: skip
def test_the_former_verb_asks_for_the_same(
    verb: tuple[str, ...], former: tuple[str, ...], method: str, path: str, body: dict[str, Any]
) -> None:
    found = asked("policy", *verb, "--for", "jobs", "--reason", "why")
    assert found == [(method, path, body)]
    assert asked("jobs", "policy", *former, "--reason", "why") == found


def test_without_a_share_the_domain_says_which_is_next() -> None:
    assert asked("policy", "promote", "--for", "jobs") == [
        ("POST", f"{ROUTE}/promote", {"force": False, "reason": ""}),
    ]  # fmt: skip


def test_a_candidate_that_is_named_is_told_to_whoever_promotes_it() -> None:
    ((_, _, body),) = asked("policy", "promote", "marginal", "--for", "jobs")
    assert body == {"name": "marginal", "force": False, "reason": ""}


def test_show_says_the_same_by_both_names(capsys: pytest.CaptureFixture[str]) -> None:
    asked("policy", "show", "--for", "jobs")
    shown = capsys.readouterr().out
    assert "candidate   marginal" in shown
    asked("jobs", "policy", "show")
    assert capsys.readouterr().out == shown


def test_the_domains_policies_are_listed_with_their_roles(capsys: pytest.CaptureFixture[str]) -> None:
    for output in ("json", "yaml", "wide", "name"):
        asked("policy", "list", "--for", "jobs", "-o", output)
        assert "marginal-fixed" in capsys.readouterr().out
    asked("policy", "list", "--for", "jobs")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {("elastic", "settings"), ("marginal", "canary")} <= {(row[0], row[3]) for row in rows}
    assert {row[0] for row in rows[1:]} == set(POLICIES)
    roles = {row["name"]: (row["role"], row["percent"]) for row in rows_of(POLICIES, FOUND)}
    assert (roles["elastic"], roles["marginal"], roles["fifo"]) == (("settings", None), ("canary", 10), ("", None))
    gone = rows_of(POLICIES, {**FOUND, "stage": "none"})
    assert {row["role"] for row in gone if row["name"] == "marginal"} == {""}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("show", "--for", "nodes"), "--for: 'nodes' is not one of pods, jobs, rebalance, nor a ResilientAutoscaler"),
        (("show", "--for", "/web"), "--for: '/web' is not one of"),
        (("show", "--for", "a/b/c"), "--for: 'a/b/c' is not one of"),
        (("show", "marginal", "--for", "jobs"), "NAME: cards are kept of policies for pods"),
        (("try", "drf", "--for", "jobs", "--stage", "canary"), "--stage: belongs to pods"),
        (("try", "drf", "--for", "jobs", "--manual"), "--auto: belongs to pods"),
        (("try", "drf", "--for", "jobs", "--etcd", "h:1"), "--etcd: belongs to pods"),
        (("promote", "--for", "jobs", "--to", "active"), "--to: belongs to pods"),
        (("promote", "--for", "jobs", "--percent", "100"), "--percent: 100 is not from 1 to 99"),
        (("promote",), "NAME: which candidate is meant?"),
        (("back", "--for", "jobs", "--reason", " "), "--reason: is empty"),
        (("back", "--kubeconfig", "k"), "--kubeconfig: the server is asked about pods"),
        (("approve",), "--for: policies for pods are promoted step by step and need no approval"),
        (("approve", "--for", "jobs"), "--for: policies for jobs are promoted step by step"),
        (("try", "hpa", "--for", "shop/web"), "--for: shop/web: a ResilientAutoscaler's stages are in its spec"),
        (("promote", "--for", "shop/web"), "raise its spec.mode and spec.canary"),
        (("back", "--for", "shop/web", "--server", "http://x:1"), "--server: shop/web is asked of its cluster"),
        (("back", "--for", "shop/web", "--reason", "why"), "--reason: nothing keeps one of shop/web"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_before_anybody_is_asked(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["policy", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_a_candidate_is_shown_with_its_stage_its_worth_and_when_it_goes() -> None:
    text = "\n".join(lines_of(JOBS, FOUND))
    assert "stage       canary (10 % of the jobs)" in text
    assert "1.040 ± 0.020 of its teacher's over the last 30 min" in text
    assert "2 good one after the other; it goes back by itself at 5% of a window's worth" in text


def test_one_that_was_taken_back_says_why() -> None:
    told = {**FOUND, "stage": "none", "ratio": 0.0, "reason": "7.0% worse than its teacher"}
    text = "\n".join(lines_of(JOBS, told))
    assert "none: it was taken back" in text
    assert "why         7.0% worse" in text
    assert "good one after the other" not in text


def test_without_one_it_says_how_to_begin() -> None:
    assert lines_of(JOBS, {"policy": "", "stage": "none", "candidate": ""}) == [
        "settings    (no jobs service leads)",
        "candidate   none; 'conclave policy try NAME --for jobs' tries one in shadow",
    ]
