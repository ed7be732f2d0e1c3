"""``conclave autoscale list|show|recommend|why|go|pause|resume`` against a scripted API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from services.cli.app import conclave
from services.cli.autoscale import objects, steering
from shared.errors import ConfigError, KubeRejected

Json = dict[str, Any]


def item(**spec: Any) -> Json:
    decision = {
        "at": "2026-11-23T12:00:00Z", "service": "front", "from": 4, "to": 7, "wanted": 9, "rule": 5, "by": "hpa",
        "why": "hpa decided; rate-up: at most 4 pods", "seen": "4 ready",
    }  # fmt: skip
    return {
        "metadata": {"namespace": "shop", "name": "graph", "uid": "u", "generation": 2},
        "spec": {"mode": "act-on-scale", "policy": {"name": "hpa"}, **spec},
        "status": {
            "observedGeneration": 2, "digest": "sha256:1", "replicas": 4, "decidedBy": "hpa",
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Decided", "message": "ok"},
                {"type": "Acting", "status": "False", "reason": "NotApproved", "message": "nobody \x1b[31m gave a go"},
            ],
            "services": [{"name": "front", "replicas": 4, "ready": 4, "wanted": 9, "rule": 5, "allowed": 7}],
            "decisions": [decision],
        },
    }  # fmt: skip


class Api:
    """The part of a client that the commands use."""

    def __init__(self, items: list[Json], *, refuse: int = 0) -> None:
        self.items = items
        self.refuse = refuse
        self.patches: list[Json] = []

    async def read(self, route: str, path: str, *, timeout_s: float) -> bytes:
        if self.refuse:
            raise KubeRejected("refused", status=self.refuse)
        return json.dumps({"items": self.items}).encode()

    async def patch(self, resource: object, *, namespace: str, name: str, patch: Json, **_: Any) -> None:
        self.patches.append({"namespace": namespace, "name": name, **patch})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api([item()])

    async def ask(kubeconfig: object, context: str, work: Callable[[Any], Any]) -> Any:
        return await work(made)

    monkeypatch.setattr(objects, "_ask", ask)
    return made


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(conclave, ["autoscale", *arguments], input=text)


def test_list_and_show_say_who_acts_and_why_not(api: Api):
    listed = run("list").output.splitlines()
    assert listed[1].split() == ["shop/graph", "act-on-scale", "hpa", "True", "False", "NotApproved", "4", "-", "-"]
    shown = run("show", "shop/graph").output
    assert "NotApproved" in shown
    assert "\x1b" not in shown
    assert json.loads(run("show", "shop/graph", "-o", "json").output)["metadata"]["name"] == "graph"


def test_recommend_shows_the_digest_of_a_go(api: Api):
    told = run("recommend", "graph", "-n", "shop").output
    assert "sha256:1" in told
    assert "7" in told


def test_why_tells_decisions_of_one_service(api: Api):
    assert "4 -> 7" in run("why", "shop/graph", "front").output
    assert isinstance(run("why", "shop/graph", "cart").exception, ConfigError)


def test_go_approves_what_was_shown(api: Api):
    done = run("approve", "shop/graph", "--by", "ada", "--yes")
    assert done.exit_code == 0
    (patch,) = api.patches
    assert patch["metadata"] == {"uid": "u"}
    assert (patch["spec"]["go"]["by"], patch["spec"]["go"]["digest"]) == ("ada", "sha256:1")


@pytest.mark.parametrize(
    ("change", "arguments", "word"),
    [
        ({"observedGeneration": 1}, (), "does an autoscaler lead"),
        ({}, ("--digest", "sha256:2"), "read it again"),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "a loop of calls"}]}, (), "a loop of calls"),
    ],
)
def test_go_is_refused_where_it_could_be_for_something_else(
    monkeypatch: pytest.MonkeyPatch, api: Api, change: Json, arguments: tuple[str, ...], word: str
):
    monkeypatch.setattr(steering, "WAIT_S", 0.0)
    api.items[0]["status"] |= change
    done = run("approve", "shop/graph", "--yes", *arguments)
    assert isinstance(done.exception, ConfigError)
    assert word in str(done.exception)
    assert api.patches == []


def test_go_asks_first(api: Api):
    assert isinstance(run("approve", "shop/graph", text="n\n").exception, ConfigError)
    assert api.patches == []


def test_pause_and_resume_write_once(api: Api):
    assert run("pause", "shop/graph").exit_code == 0
    assert api.patches[0]["spec"] == {"paused": True}
    assert "already" in run("resume", "shop/graph").output
    assert len(api.patches) == 1


def test_bad_names_and_missing_kinds_are_one_line(api: Api):
    assert "no such" in str(run("show", "shop/nobody").exception)
    assert "--namespace" in str(run("show", "shop/graph", "-n", "other").exception)
    api.refuse = 404
    assert "apply k8s/components/autoscaler" in str(run("list").exception)


def policy(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(conclave, ["policy", *arguments, "--for", "shop/graph"], input=text)


def test_a_scaler_is_shown_and_approved_as_by_its_former_commands(api: Api):
    assert policy("show").output == run("show", "shop/graph").output
    assert policy("approve", "--by", "ada", "--yes").exit_code == 0
    assert run("approve", "shop/graph", "--by", "ada", "--yes").exit_code == 0
    first, again = api.patches
    assert first["spec"]["go"] | {"at": ""} == again["spec"]["go"] | {"at": ""}


def test_a_scalers_policies_are_listed_with_the_one_that_decides(api: Api):
    def active() -> list[str]:
        rows = json.loads(policy("list", "-o", "json").output)["items"]
        return [row["metadata"]["name"] for row in rows if row["role"] == "active"]

    assert active() == ["hpa"]
    api.items = [item(policy={"name": "karma"})]
    assert active() == ["karma"]
    api.items = [item(policy={"name": "karma"}, killSwitch="PlainHPA")]
    assert active() == ["hpa"]


def test_a_scaler_is_taken_back_to_hpas_rule_once(api: Api):
    assert "HPA's rule decides" in policy("back").output
    (patch,) = api.patches
    assert (patch["spec"], patch["metadata"]) == ({"killSwitch": "PlainHPA"}, {"uid": "u"})
    api.items = [item(killSwitch="PlainHPA")]
    assert "already" in policy("back").output
    assert json.loads(policy("back", "-o", "json").output) == {"object": "shop/graph", "killSwitch": "PlainHPA"}
    assert len(api.patches) == 1
