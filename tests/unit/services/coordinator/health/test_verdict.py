"""One verdict over a leader: each code is found, keeps its beginning, goes again, and has an alert and a runbook."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context, Group
from msgspec.structs import replace

from services.cli.app import conclave
from services.coordinator.core.events import ControlSeen, PointerSeen
from services.coordinator.health.history import COUNTED, LEVELS, MOST_RESOURCES, STEP_S, STEPS, HealthHistory
from services.coordinator.health.monitor import Vitals, register
from services.coordinator.health.pulse import Pulse
from services.coordinator.health.verdict import (
    BAD,
    DEGRADED,
    FAILOVER_S,
    OK,
    RULES,
    RUNBOOKS,
    SETTLING_S,
    Health,
    HealthSignals,
    HealthVerdicts,
)
from services.coordinator.inspect.throughput import Throughput
from services.coordinator.settings import CoordinatorSettings
from shared.runtime.observe.metrics import Metrics
from shared.wire.records import Paused, PolicyPointer, PolicyRef
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

WELL = HealthSignals(agents=2, nodes=3)
ILL: dict[str, tuple[dict[str, Any], str]] = {
    "leader_late": ({"turn_longest_s": 2.5}, DEGRADED),
    "events_behind": ({"events_waited_s": 11.0, "events_waiting": 9}, BAD),
    "no_agents": ({"agents": 0}, BAD),
    "agents_suspected": ({"suspects": ["a0"]}, DEGRADED),
    "nodes_unowned": ({"nodes_unowned": 1}, DEGRADED),
    "writes_queued": ({"writes_queued": 4, "writes_oldest_s": 61.0}, BAD),
    "no_binder": ({"unbound_shards": ["0"]}, BAD),
    "plans_waiting": ({"plans_open": 1, "plans_oldest_s": 6.0}, DEGRADED),
    "not_placing": ({"standstill_s": 61.0, "active_pods": 3}, BAD),
    "scheduling_paused": ({"paused_by": "operator:anna"}, DEGRADED),
    "etcd_slow": ({"etcd_renewal_s": 1.2}, DEGRADED),
    "etcd_full": ({"etcd_refuses": "etcd is full (NOSPACE)"}, BAD),
    "etcd_short": ({"etcd_fill": 0.85}, DEGRADED),
    "watches_blind": ({"watches_lost": ["pods"], "watch_lost_s": 27.0}, DEGRADED),
    "policy_rolled_back": ({"rolled_back": "frag@3 (worse)"}, DEGRADED),
}


def lasting(seen: HealthSignals, verdicts: HealthVerdicts | None = None) -> Health:
    """The verdict once this has been so for a minute."""
    verdicts = verdicts or HealthVerdicts()
    verdicts.judge(dataclasses.replace(seen, at=100.0), "t0")
    return verdicts.judge(dataclasses.replace(seen, at=160.0), "t60")


def test_a_leader_without_findings_is_well() -> None:
    health = HealthVerdicts().judge(WELL, "t0")
    assert (health.verdict, health.findings) == (OK, [])


@pytest.mark.parametrize("code", ILL)
def test_what_is_wrong_is_a_finding_with_value_threshold_and_remedy(code: str) -> None:
    fields, severity = ILL[code]
    health = lasting(HealthSignals(**{"agents": 2, "nodes": 3} | fields))
    (finding,) = health.findings
    assert (finding.code, finding.severity, health.verdict) == (code, severity, severity)
    assert finding.value > finding.threshold
    assert finding.message
    assert finding.remedy
    assert finding.runbook.endswith(f"#{finding.alert.lower()}")


def test_a_remedy_names_commands_that_there_are() -> None:
    named = [words.split() for rule in RULES for words in re.findall(r"conclave ([a-z-]+(?: [a-z-]+)?)", rule.remedy)]
    assert ["policy", "show"] in named
    for first, *rest in named:
        command = conclave.get_command(Context(conclave), first)
        assert command is not None, first
        if isinstance(command, Group):
            assert command.get_command(Context(command), " ".join(rest)) is not None, (first, rest)


def test_every_rule_is_tried_here_and_has_an_alert() -> None:
    assert ILL.keys() == {rule.code for rule in RULES}
    groups = yaml.safe_load(Path("compose/monitoring/alerts.yaml").read_text())["groups"]
    alerts = {alert["alert"]: alert for group in groups for alert in group["rules"]}
    assert {rule.alert for rule in RULES} <= alerts.keys()


def test_a_finding_keeps_its_beginning_until_it_goes() -> None:
    verdicts, late = HealthVerdicts(), HealthSignals(agents=2, turn_longest_s=3.0)
    verdicts.judge(late, "t0")
    health = verdicts.judge(late, "t1")
    assert (health.since, health.findings[0].since) == ("t0", "t0")
    assert verdicts.judge(WELL, "t2").findings == []
    again = verdicts.judge(late, "t3")
    assert (again.since, again.findings[0].since) == ("t3", "t3")


def test_the_worst_finding_is_the_verdict_and_comes_first() -> None:
    health = lasting(HealthSignals(agents=2, suspects=["a0"], unbound_shards=["0"]))
    assert (health.verdict, [f.code for f in health.findings]) == (BAD, ["no_binder", "agents_suspected"])


def test_all_agents_suspected_is_bad() -> None:
    assert lasting(HealthSignals(agents=2, suspects=["a0", "a1"])).verdict == BAD


def test_a_pause_that_nobody_feels_is_no_finding() -> None:
    for seen in (
        HealthSignals(agents=2, turn_longest_s=0.4), HealthSignals(agents=2, turn_longest_s=1.9),
        HealthSignals(agents=2, events_waited_s=1.9), HealthSignals(agents=2, etcd_renewal_s=0.6),
        HealthSignals(agents=2, writes_queued=9, writes_oldest_s=8.0),
    ):  # fmt: skip
        assert lasting(seen).verdict == OK, seen


@pytest.mark.parametrize("code", ["leader_late", "events_behind", "plans_waiting", "agents_suspected", "nodes_unowned"])
def test_what_a_take_over_brings_is_expected_for_a_while_and_told_where_it_stays(code: str) -> None:
    fields = {"events_behind": {"events_waited_s": 3.0}}.get(code, ILL[code][0])
    taken_over = HealthSignals(**{"agents": 2, "nodes": 3, "led_s": SETTLING_S / 2} | fields)
    verdicts = HealthVerdicts()
    assert lasting(taken_over, verdicts).findings == []
    later = lasting(dataclasses.replace(taken_over, led_s=SETTLING_S + 1), verdicts)
    assert [(finding.code, finding.severity) for finding in later.findings] == [(code, DEGRADED)]


def test_a_take_over_excuses_no_outage() -> None:
    seen = HealthSignals(agents=2, nodes=3, led_s=1.0, turn_longest_s=30.0, suspects=["a0", "a1"], etcd_refuses="full")
    assert {finding.code for finding in lasting(seen).findings} == {"leader_late", "agents_suspected", "etcd_full"}


@pytest.mark.parametrize("code", ["no_binder", "no_agents", "agents_suspected", "nodes_unowned"])
def test_another_ones_failover_is_told_where_it_lasts(code: str) -> None:
    seen, verdicts = HealthSignals(**{"agents": 2, "nodes": 3} | ILL[code][0]), HealthVerdicts()

    def codes(at: float, **fields: Any) -> list[str]:
        now = dataclasses.replace(seen, at=at, **fields)
        return [finding.code for finding in verdicts.judge(now, f"t{at}").findings]

    assert codes(10.0) == []
    assert codes(10.0 + FAILOVER_S / 2) == []
    verdicts.judge(dataclasses.replace(WELL, at=11.0 + FAILOVER_S / 2), "back")
    assert codes(12.0 + FAILOVER_S) == []  # it begins anew
    assert codes(12.0 + 2 * FAILOVER_S) == [code]
    assert verdicts.health.findings[0].since == f"t{12.0 + FAILOVER_S}"


# --- what is measured -----------------------------------------------------------------------------------------------


class Watched:
    """A scene with vitals on its clock."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.backlog = (0, 0.0)
        self.wall = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        self.vitals = Vitals(
            core=self.scene.core, throughput=Throughput(), clock=lambda: self.scene.now, backlog=lambda: self.backlog,
            renewal_s=lambda: 0.01, wall=lambda: self.wall,
        )  # fmt: skip
        self.scene.add_node(make_node("n0").node())
        self.scene.begin()
        self.scene.run()

    def pass_(self, seconds: float) -> None:
        self.scene.now += seconds
        self.wall += dt.timedelta(seconds=seconds)
        self.vitals.look()

    @property
    def codes(self) -> list[str]:
        return [finding.code for finding in self.vitals.verdicts.health.findings]


def test_a_leader_that_has_not_listed_everything_is_not_judged() -> None:
    vitals = Vitals(core=Scene().core, throughput=Throughput(), clock=lambda: 0.0)
    vitals.look()
    assert vitals.verdicts.health.since == ""


def test_pods_to_try_and_no_attempt_that_ends_is_a_standstill_and_one_that_ends_is_none() -> None:
    watched = Watched()
    watched.pass_(1)
    assert watched.codes == []
    watched.scene.core.state.queue.add(make_pod("p").pod(), watched.scene.now)  # nobody begins a round
    watched.pass_(1)
    watched.pass_(25)
    assert watched.codes == ["not_placing"]
    watched.scene.core.state.stats.parked += 1
    watched.pass_(1)
    assert watched.codes == []


def test_a_paused_leader_does_not_stand_still() -> None:
    watched = Watched()
    watched.scene.deliver(ControlSeen(paused=Paused(by="operator:anna", reason="upgrade", since="")))
    watched.scene.core.state.queue.add(make_pod("p").pod(), watched.scene.now)
    watched.pass_(1)
    watched.pass_(100)
    assert watched.codes == ["scheduling_paused"]
    assert "anna" in watched.vitals.verdicts.health.findings[0].message


def test_a_leader_counts_its_time_from_when_it_knew_the_whole_cluster() -> None:
    watched = Watched()
    watched.scene.now += 500
    watched.pass_(0)
    watched.vitals.pulse.turned(watched.scene.now, took_s=4.0, waited_s=0.0, events=9)
    watched.pass_(1)
    assert (watched.vitals.signals.led_s, watched.codes) == (1.0, [])
    watched.pass_(SETTLING_S)
    watched.vitals.pulse.turned(watched.scene.now, took_s=4.0, waited_s=0.0, events=9)
    watched.pass_(1)
    assert watched.codes == ["leader_late"]


def test_a_plan_that_nobody_answers_is_told_from_when_it_was_made() -> None:
    watched = Watched()
    watched.pass_(0)
    watched.pass_(SETTLING_S)
    watched.scene.hold_plans = True
    watched.scene.add_pod(make_pod("p").pod())
    watched.scene.run()
    watched.pass_(6)
    assert watched.codes == ["plans_waiting"]
    assert watched.vitals.verdicts.health.findings[0].value == pytest.approx(6.0, abs=0.1)


def test_a_candidate_that_is_withdrawn_is_told_for_an_hour_and_one_that_wins_is_not() -> None:
    kube, frag = PolicyRef("kube-default", 1, ""), PolicyRef("frag", 3, "")
    for after, told in (
        (PolicyPointer(active=kube, number=2, reason="worse", by="rollout"), ["policy_rolled_back"]),
        (PolicyPointer(active=kube, number=2, reason="no more", by="operator:anna"), []),
        (PolicyPointer(active=frag, previous=kube, number=2), []),
    ):
        watched = Watched()
        watched.scene.deliver(PointerSeen(PolicyPointer(active=kube, candidate=frag, stage="shadow", number=1)))
        watched.pass_(1)
        watched.scene.deliver(PointerSeen(after))
        watched.pass_(1)
        assert watched.codes == told
        watched.pass_(3601)
        assert watched.codes == []


@pytest.mark.parametrize("url", ["", "https://wiki/conclave/runbooks", "http://[fd00::7]:8701/ui/runbooks.html"])
def test_findings_lead_to_the_runbooks_of_the_setting(url: str) -> None:
    settings = CoordinatorSettings(runbooks_url=url)
    found = lasting(
        HealthSignals(agents=2, nodes=3, paused_by="ann"), HealthVerdicts(settings.runbooks_url or RUNBOOKS)
    ).findings
    assert [one.runbook for one in found] == [f"{url or '/ui/runbooks.html'}#conclaveschedulingpaused"]


@pytest.mark.parametrize(
    "url", ["wiki/runbooks", "javascript:alert(1)", "https://wiki/#/runbooks", "ftp://x/y", "https:// x"]
)
def test_an_address_of_runbooks_that_nobody_could_follow_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"runbooks_url: .* give one without #"):
        CoordinatorSettings(runbooks_url=url)


def test_the_metrics_tell_the_verdict_and_each_finding() -> None:
    watched, metrics = Watched(), Metrics("coordinator")
    found: list[Vitals | None] = [None]
    register(metrics, lambda: found[0])
    assert b"conclave_health_verdict 0.0" in metrics.exposition()
    found[0] = watched.vitals
    watched.backlog = (7, 61.0)
    watched.pass_(1)
    text = metrics.exposition().decode()
    assert "conclave_health_verdict 2.0" in text
    assert 'conclave_health_finding{code="writes_queued"} 2.0' in text
    assert 'conclave_health_finding{code="leader_late"} 0.0' in text
    assert "conclave_writes_queued 7.0" in text


# --- pulse and history ----------------------------------------------------------------------------------------------


def test_the_longest_turn_is_that_of_the_last_minute_and_no_late_beat() -> None:
    pulse = Pulse()
    for at, took_s in ((10.0, 0.4), (10.5, 0.1), (30.2, 0.2), (30.9, 0.05)):
        pulse.turned(at, took_s=took_s, waited_s=0.0, events=1)
    pulse.beat(31.0, late_s=9.0)
    assert pulse.longest_turn_s(31.0) == 0.4
    assert pulse.longest_turn_s(70.5) == 0.2
    pulse.turned(91.0, took_s=0.01, waited_s=0.0, events=1)
    assert pulse.longest_turn_s(91.0) == 0.01


def test_the_pulse_tells_the_longest_turn_of_a_minute_and_forgets_it_then() -> None:
    pulse = Pulse()
    pulse.turned(100.0, took_s=0.2, waited_s=0.1, events=5)
    pulse.turned(100.5, took_s=1.5, waited_s=0.0, events=2)
    pulse.beat(101.0, late_s=0.7)
    assert pulse.longest_s(110.0) == 1.5
    assert (pulse.waited_s(110.0), pulse.events(110.0)) == (0.1, 5)
    assert pulse.busy_share(105.0) == pytest.approx(0.17)
    assert pulse.longest_s(161.0) == 0.7
    assert pulse.longest_s(170.0) == 0.0
    for second in range(1000):
        pulse.turned(200.0 + second, took_s=0.0, waited_s=0.0, events=1)
    assert len(pulse._slots) <= 62


def test_history_keeps_an_hour_in_fixed_memory() -> None:
    history = HealthHistory()
    for step in range(STEPS + 50):
        at = 1000.0 + STEP_S * step
        assert history.due(at)
        totals = dict.fromkeys(COUNTED, 20.0 * step)
        levels = {"pending_active": float(step), "latency_p50_ms": float("nan")}
        history.took(at, totals, levels, {f"r{number}": 0.5 for number in range(MOST_RESOURCES + 5)})
    times, series = history.times(), history.series()
    assert len(times) == STEPS
    assert times == sorted(times)
    assert {len(column) for column in series.values()} == {STEPS}
    assert series.keys() == {*COUNTED, *LEVELS}
    assert series["bound_per_s"][-1] == 2.0
    assert (series["pending_active"][-1], series["latency_p50_ms"][-1]) == (STEPS + 49, None)
    assert len(history.allocation()) == MOST_RESOURCES
    assert history.times(times[-2]) == times[-1:]


def test_the_first_step_knows_levels_and_no_rates_and_none_is_due_before_its_time() -> None:
    history = HealthHistory()
    history.took(1000.0, dict.fromkeys(COUNTED, 5.0), {"nodes": 3.0}, {})
    assert history.series()["bound_per_s"] == [None]
    assert history.series()["nodes"] == [3.0]
    assert not history.due(1000.0 + STEP_S - 1)


def test_each_ten_seconds_a_step_is_remembered() -> None:
    watched = Watched()
    for _ in range(25):
        watched.pass_(1)
    series = watched.vitals.history.series()
    assert len(series["nodes"]) == 3
    assert series["nodes"][-1] == 1.0
    assert watched.vitals.history.allocation()["cpu_millis"][-1] == 0.0
    assert replace(watched.vitals.verdicts.health, findings=[]).verdict == OK
