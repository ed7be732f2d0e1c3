"""What people read of a TrainingJob."""

from __future__ import annotations

from typing import Any

import msgspec

from services.cli.jobs.text import JOBS, job_lines, listed, why_lines
from shared.kube.training.training_jobs import TrainingJobObject

TEMPLATE = {"spec": {"containers": [{"name": "t", "image": "t"}]}}
READY = {"type": "Ready", "status": "False", "reason": "Waiting", "message": "it needs 2 workers of 1 GPUs"}


def an_item(*conditions: dict[str, str], **status: Any) -> TrainingJobObject:
    body = {
        "metadata": {"name": "a", "namespace": "team", "uid": "u", "creationTimestamp": "2026-11-23T00:00:00Z"},
        "spec": {"template": TEMPLATE, "workers": {"minimum": 2, "maximum": 4}, "checkpoint": {"path": "/ckpt"}},
        "status": {**status, "conditions": list(conditions)},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=TrainingJobObject)


def test_a_job_is_one_row():
    began = "2026-11-23T00:00:00Z"
    item = an_item(
        READY, phase="Running", startTime=began, runningWorkers=3, targetWorkers=4, report={"progress": 0.25}
    )
    row = listed(item, now=lambda: 1_795_392_000.0 + 3600)
    assert JOBS.lines([row])[1].split()[:7] == ["team", "a", "Running", "3/4", "2-4", "25.0%", "0"]
    assert JOBS.lines([])[0].startswith("there is no TrainingJob")


def test_why_says_what_to_do():
    lines = why_lines(an_item(READY, phase="Pending"))
    assert lines[0] == "team/a: Pending: it needs 2 workers of 1 GPUs"
    assert "lower spec.workers.minimum" in lines[1]


def test_why_of_a_job_that_no_node_takes_says_what_to_look_for():
    told = {**READY, "reason": "DoesNotFit", "message": "no node took its pods for 600 s, 2 times"}
    lines = why_lines(an_item(told, phase="Pending"))
    assert "2 times" in lines[0]
    assert "'conclave nodes' shows what is free" in lines[1]


def test_why_without_a_service_says_so():
    assert "does it run?" in why_lines(an_item())[0]


def test_show_names_what_a_restart_costs_and_what_was_lost():
    text = "\n".join(job_lines(an_item(READY, phase="Running", restarts=3, restartSeconds=12.5, lostSteps=40)))
    assert "3, 12 s each (measured); 40 steps lost by them" in text
    assert "/ckpt" in text


def test_nothing_of_a_users_text_reaches_the_terminal_unprinted():
    evil = {**READY, "message": "x\x1b[2J"}
    assert "\x1b" not in "\n".join([*why_lines(an_item(evil)), *job_lines(an_item(evil))])
