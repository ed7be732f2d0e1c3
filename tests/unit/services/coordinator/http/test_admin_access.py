"""Who may ask what: every route with no credential, each role, and through a standby; tokens and certificates."""

from __future__ import annotations

import dataclasses
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.coordinator.http.table import ROUTES
from shared.adapters.peers.credentials import TokenFile
from shared.adapters.peers.identity import identity_of
from shared.election.record import LeaderRecord
from shared.errors import ConfigError
from shared.policy.weights import digest, encode, shipped
from shared.runtime.http import admin
from shared.runtime.http.callers import PROXIED, VOUCHED, Caller, Role, caller_of, check_role
from shared.runtime.http.limits import Rate
from shared.runtime.http.routes import Route
from shared.runtime.observe.metrics import Metrics
from shared.runtime.records.admin import read_audit
from tests.certificates import TestCa
from tests.unit.services.coordinator.http.api_world import KEYS, ApiWorld, Seen, api_world

WEIGHTS = encode(shipped("lb"))
BODIES = {
    "/v1/shards": {"names": ["0"]},
    "/v1/jobs/policy": {"name": "drf"},
    "/v1/rebalance/policy": {"name": "load"},
    "/v1/policies/activate": {"name": "least-allocated", "stage": "shadow"},
    "/v1/policies/promote": {"name": "least-allocated"},
    "/v1/policies/weights": {"name": "lb", "sha256": digest(WEIGHTS), "data": b64encode(WEIGHTS).decode()},
    "/v1/settings": {"values": {"batch_units": 65}},
    "/v1/log-level": {"level": "info"},
}
"""A body that fits, where one is needed."""


def place_of(route: Route) -> str:
    """A path of the route that leads somewhere."""
    name = {"pods": "p0", "policies": "fgd", "units": "train", "queues": "research"}.get(route.path.split("/")[2], "n0")
    return route.path.replace("{name}", name).replace("{namespace}", "default")


async def status_of(world: ApiWorld, route: Route, role: str | None, at: str = "c0") -> tuple[int, str]:
    """(status, code); of a stream only its head is read."""
    options = {"json": BODIES[route.path]} if route.path in BODIES and route.writes else {}
    if route.media_type != "text/event-stream":
        answered = await world.ask(route.method, place_of(route), role, at=at, **options)
        return answered.status, answered.code
    headers = {"Authorization": f"Bearer {role}-token-0123456789"} if role else {}
    async with world.session.get(world.listeners[at].url + route.path, headers=headers) as response:
        return response.status, "" if response.status == 200 else (await response.json())["code"]


async def test_every_route_asks_for_a_credential_and_its_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "READS", Rate(1e9, 1e9))  # all routes together cost more than one caller may have
    async with api_world(tmp_path) as world:
        for route in ROUTES:
            assert await status_of(world, route, None) == (401, "unauthenticated"), route.name
            for role in Role:
                status, code = await status_of(world, route, role.title)
                if role < route.role:
                    assert (status, code) == (403, "forbidden"), (route.name, role)
                else:
                    may_refuse = route.path.endswith(("rollback", "promote"))
                    refused = may_refuse and code in ("conflict", "too_few_windows")
                    assert status == 200 or refused, (route.name, role, status, code)


async def test_without_the_roles_check_a_viewer_could_pause(tmp_path: Path) -> None:
    """The ablation: with every role set to viewer the check above would fail."""
    open_routes = tuple(dataclasses.replace(route, role=Role.VIEWER) for route in ROUTES)
    async with api_world(tmp_path, routes=open_routes) as world:
        assert (await world.ask("POST", "/v1/scheduling/pause", "viewer")).status == 200
    async with api_world(tmp_path) as world:
        assert (await world.ask("POST", "/v1/scheduling/pause", "viewer")).code == "forbidden"


@pytest.mark.parametrize("at", ["c0", "c1"])
async def test_a_page_of_another_site_changes_nothing(tmp_path: Path, at: str) -> None:
    """A browser that holds a certificate shows it for every page: the caller is known, the change is not theirs."""
    async with api_world(tmp_path) as world:
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            headers = {"Sec-Fetch-Site": site}
            answered = await world.ask("POST", "/v1/scheduling/resume", at=at, headers=headers)
            assert (site, answered.status) == (site, status)
            assert (await world.ask("GET", "/v1/leader", at=at, headers=headers)).status == 200
        assert len(await read_audit(world.store, KEYS)) == 2


async def test_a_standby_authenticates_too_and_then_passes_on(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        for route in ROUTES:
            assert (await status_of(world, route, None, at="c1"))[0] == 401, route.name
            if route.role > Role.VIEWER:
                assert (await status_of(world, route, "viewer", at="c1"))[0] == 403, route.name
        leader = await world.ask("GET", "/v1/leader", "viewer", at="c1")
        assert leader.json["id"] == "c0"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("viewer", True), ("operator olga", True), ("admin a.d-a_1@x", True), ("", False), ("root", False),
        ("viewer two names", False), ("admin <b>x</b>", False), ("Viewer", False),
    ],
)  # fmt: skip
def test_a_line_of_the_token_file_names_a_role_and_at_most_a_name(text: str, right: bool) -> None:
    assert (check_role(text) == "") is right


def test_a_token_without_a_role_is_refused_at_start(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("some-token-0123456789\n")
    with pytest.raises(ConfigError, match="there must be viewer, operator or admin"):
        TokenFile(file, check_role=check_role)


def test_a_callers_title_is_read_back() -> None:
    for caller in (Caller("viewer"), Caller("admin", "ada")):
        assert caller_of(caller.title) == caller
    assert caller_of("coordinator:c1") is None
    assert caller_of("admin:<script>") is None


class Certificates:
    """A CA and what it signed."""

    def __init__(self, folder: Path) -> None:
        self._ca = TestCa()
        self._folder = folder
        self.ca = self._ca.write(folder / "ca.pem")

    def pair(self, name: str) -> tuple[Path, Path]:
        return self._ca.issue(self._folder, name, "127.0.0.1", "localhost", identity_of("coordinator"))

    def context(self, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if name:
            context.load_cert_chain(*map(str, self.pair(name)))
        return context


async def test_a_certificate_names_role_and_person_and_only_a_coordinator_vouches(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.pair("coordinator:c0")
    async with api_world(tmp_path) as world:
        tls = {"tls_cert": cert, "tls_key": key, "tls_ca": certificates.ca}
        url = (await world.open("c0-tls", world.admin, Metrics("coordinator"), **tls)).url

        async def ask(name: str, **headers: str) -> tuple[int, str]:
            async with world.session.post(
                f"{url}/v1/scheduling/pause", ssl=certificates.context(name), headers=headers
            ) as response:
                return response.status, str((await response.json()).get("by", ""))

        assert await ask("operator:olga") == (200, "operator:olga")
        assert await ask("viewer:vic") == (403, "")
        assert await ask("agent:a0") == (401, "")
        # an etcd user may be called so, and one CA may have signed for both
        assert await ask("admin") == (401, "")
        # a browser has a token and no certificate; one that has neither is nobody
        assert (await ask("", Authorization="Bearer admin-token-0123456789"))[0] == 200
        assert await ask("") == (401, "")
        # only a coordinator may say in whose name it asks, and only a known role
        assert await ask("coordinator:c1", **{PROXIED: "c1", VOUCHED: "viewer:vic"}) == (403, "")
        assert (await ask("coordinator:c1", **{PROXIED: "c1", VOUCHED: "operator:olga"}))[0] == 200
        assert await ask("coordinator:c1", **{PROXIED: "c1", VOUCHED: "root:x"}) == (401, "")
        assert await ask("viewer:vic", **{PROXIED: "c1", VOUCHED: "admin:ada"}) == (403, "")
        with pytest.raises(aiohttp.ClientError):
            async with world.session.get(f"{url}/v1/leader"):  # does not know our CA
                pass


async def test_callers_are_told_who_they_are_to_us_also_by_a_standby(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        for at in ("c0", "c1"):
            answered = await world.ask("GET", "/v1/whoami", "viewer", at=at)
            assert answered.json == {"role": "viewer", "name": "viewer-1"}


async def test_a_standby_with_certificates_passes_no_token_on_in_the_clear(tmp_path: Path) -> None:
    """A leader of another overlay, or a forged record: whoever listens there would be sent the caller's token."""
    certificates = Certificates(tmp_path)
    cert, key = certificates.pair("coordinator:c1")
    heard: list[str] = []

    async def listen(request: web.Request) -> web.Response:
        heard.append(request.headers.get("Authorization", ""))
        return web.json_response({})

    async with api_world(tmp_path) as world, TestServer(_answering(listen)) as plain:
        tls = {"tls_cert": cert, "tls_key": key, "tls_ca": certificates.ca}
        await world.listeners["c1"].close()
        url = (await world.open("c1", world.desks["c1"].admin, Metrics("coordinator"), **tls)).url
        record = LeaderRecord(identity="c0", incarnation="i", admin_url=str(plain.make_url("")))
        world.standing_by.leader = Seen(record.encode(), world.leading.term)
        headers = {"Authorization": "Bearer admin-token-0123456789"}
        async with world.session.post(
            f"{url}/v1/scheduling/pause", ssl=certificates.context(""), headers=headers
        ) as response:
            assert (response.status, (await response.json())["code"]) == (503, "no_leader")
    assert heard == []


def _answering(handler: Callable[[web.Request], Awaitable[web.Response]]) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    return app


async def test_a_standby_vouches_for_a_certificate_towards_the_leader(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    async with api_world(tmp_path) as world:
        for name in ("c0", "c1"):
            cert, key = certificates.pair(f"coordinator:{name}")
            tls = {"tls_cert": cert, "tls_key": key, "tls_ca": certificates.ca}
            await world.listeners[name].close()
            await world.open(name, world.desks[name].admin, Metrics("coordinator"), **tls)
        record = LeaderRecord(identity="c0", incarnation="i", admin_url=world.listeners["c0"].url)
        world.standing_by.leader = Seen(record.encode(), world.leading.term)
        for person, expected in (("operator:olga", (200, "operator:olga")), ("viewer:vic", (403, ""))):
            async with world.session.post(
                f"{world.listeners['c1'].url}/v1/scheduling/pause", ssl=certificates.context(person)
            ) as response:
                assert (response.status, (await response.json()).get("by", "")) == expected
