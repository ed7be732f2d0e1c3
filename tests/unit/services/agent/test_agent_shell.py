"""The agent's routes: bytes in, bytes out, refusals with their codes. No network."""

from __future__ import annotations

from random import Random

import pytest

from services.agent.settings import AgentSettings
from services.agent.shell import AgentShell
from shared.agent.core import AgentCore
from shared.errors import ConfigError, StoreUnknown, WireError
from shared.policy.heuristics import KubeDefault
from shared.runtime.http.callers import Caller
from shared.runtime.http.refusals import RequestRefused, refusal_of
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.settings import help_text, load
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, Decisions, Offer, View, ViewAck, ViewUpdate

CALLER = Caller()


class Etcd:
    """The term that etcd names; an error instead while it cannot be asked."""

    def __init__(self, term: int) -> None:
        self.term = term
        self.error: Exception | None = None
        self.reads = 0

    async def read_term(self) -> int:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.term


def make_shell(term: int = 5) -> tuple[AgentShell, Metrics]:
    shell, metrics, _ = make_shell_and_etcd(term)
    return shell, metrics


def make_shell_and_etcd(term: int) -> tuple[AgentShell, Metrics, Etcd]:
    metrics, etcd = Metrics("agent"), Etcd(term)
    core = AgentCore(KubeDefault(), Random(1))
    return AgentShell(core, metrics, agent_id="a1", read_term=etcd.read_term), metrics, etcd


def offer(term: int) -> bytes:
    return encode(Offer(VERSION, 1, 0, term, 1, None, []))


async def test_a_forged_term_is_refused_and_the_true_leader_goes_on() -> None:
    shell, metrics, etcd = make_shell_and_etcd(5)
    await shell.offers(offer(5), CALLER)
    forged_view = encode(ViewUpdate(VERSION, 1, 0, 99, View(1, 0, 1)))
    for route, message in ((shell.offers, offer(99)), (shell.views, forged_view)):
        with pytest.raises(WireError) as refused:
            await route(message, CALLER)
        told = refusal_of(refused.value)
        assert (told.status, told.code) == (409, "stale_term")
    await shell.offers(offer(5), CALLER)
    assert metrics.stats()["agent"]["term"] == 5
    assert etcd.reads == 3


async def test_a_term_that_etcd_names_is_asked_for_once() -> None:
    shell, _, etcd = make_shell_and_etcd(5)
    for _ in range(3):
        await shell.offers(offer(5), CALLER)
    assert etcd.reads == 1


async def test_a_new_term_waits_while_etcd_cannot_be_asked() -> None:
    shell, _, etcd = make_shell_and_etcd(5)
    etcd.error = StoreUnknown("etcd is away")
    with pytest.raises(RequestRefused) as refused:
        await shell.offers(offer(5), CALLER)
    assert (refused.value.status, refused.value.code) == (503, "not_ready")


async def test_a_view_then_an_offer_are_answered_and_counted() -> None:
    shell, metrics = make_shell()
    ack = decode(await shell.views(encode(ViewUpdate(VERSION, 1, 0, 5, View(1, 0, 3))), CALLER), ViewAck)
    assert ack.revision == 3
    answer = decode(await shell.offers(encode(Offer(VERSION, 2, 0, 5, 1, None, [])), CALLER), Decisions)
    assert (answer.revision, answer.follows) == (3, 2)
    stats = metrics.stats()
    assert (stats["agent"]["offers"], stats["agent"]["term"], stats["agent"]["revision"]) == (1, 5, 3)
    assert stats["quantiles"]["offer_cpu_us"]["count"] == 1
    assert b"conclave_agent_nodes" in metrics.exposition()


async def test_a_stale_term_is_a_conflict_not_a_malformed_message() -> None:
    shell, _ = make_shell(9)
    await shell.offers(encode(Offer(VERSION, 1, 0, 9, 1, None, [])), CALLER)
    for route, message in (
        (shell.offers, Offer(VERSION, 2, 0, 8, 1, None, [])),
        (shell.views, ViewUpdate(VERSION, 3, 0, 8, View(1, 0, 1))),
    ):
        with pytest.raises(WireError) as refused:
            await route(encode(message), CALLER)
        told = refusal_of(refused.value)
        assert (told.status, told.code) == (409, "stale_term")


async def test_what_is_no_message_or_another_kind_is_refused_with_its_code() -> None:
    shell, _ = make_shell()
    for body, code in (
        (b"", "wire_malformed"),
        (encode(ViewUpdate(VERSION, 1, 0, 5, View(1, 0, 1))), "wire_unexpected_kind"),
        (encode(Offer(VERSION + 1, 1, 0, 5, 1, None, [])), "wire_unknown_version"),
    ):
        with pytest.raises(WireError) as refused:
            await shell.offers(body, CALLER)
        assert refused.value.code == code


def test_only_coordinators_may_call_an_agent() -> None:
    shell, _ = make_shell()
    assert {route.roles for route in shell.routes()} == {frozenset({"coordinator"})}


def test_settings_come_from_flags_and_environment_and_bad_ones_are_named() -> None:
    settings = load(AgentSettings, service="agent", environ={"CONCLAVE_POLICY": "random"}, flags={"node": "n1"})
    assert (settings.policy, settings.node) == ("random", "n1")
    with pytest.raises(ConfigError, match="listen: 'nowhere' is not HOST:PORT"):
        load(AgentSettings, flags={"listen": "nowhere"})
    with pytest.raises(ConfigError, match="tls_cert, tls_key, tls_ca"):
        load(AgentSettings, flags={"tls-cert": "a.pem"})


def test_help_names_every_flag_with_its_meaning() -> None:
    text = help_text(AgentSettings, "agent")
    assert "--etcd-prefix  (CONCLAVE_ETCD_PREFIX" in text
    assert "Which policy ranks the nodes" in text
    assert "Endpoints of etcd" in text
