"""What every service is told: what cannot be meant is refused at start, in one line that names the setting."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shared.errors import ConfigError, StoreRejected
from shared.ports import MemberState, StoreState
from shared.runtime.process.etcd_upkeep import EtcdUpkeep
from shared.runtime.process.process import ProcessSettings
from shared.runtime.process.runtime import check_etcd
from tests.memory_store import MemoryStore


@pytest.mark.parametrize("url", ["", "http://10.0.0.7:8700", "http://[fd00::1]:8700", "http://agent-1", "http://a:1/"])
def test_a_url_that_peers_can_call_is_advertised(url: str) -> None:
    assert ProcessSettings(advertise=url).advertise == url


@pytest.mark.parametrize(
    ("advertise", "url"),
    [
        # status.podIP is bare in clusters of either family
        ("10.0.0.7", "http://10.0.0.7:8700"),
        ("fd00::7", "http://[fd00::7]:8700"),
        ("[fd00::7]", "http://[fd00::7]:8700"),
        ("agent-1.conclave", "http://agent-1.conclave:8700"),
        ("fe80::7%eth0", "http://[fe80::7%25eth0]:8700"),
        # and was put into a URL by a template
        ("http://fd00::7:8701", "http://[fd00::7]:8701"),
        ("http://[fd00::7]:8701/", "http://[fd00::7]:8701"),
        ("http://balancer/agents/1/", "http://balancer/agents/1"),
    ],
)
def test_an_address_alone_is_advertised_with_the_listeners_port_and_in_brackets(advertise: str, url: str) -> None:
    assert ProcessSettings(advertise=advertise).advertised(8700) == url


def test_an_address_alone_is_advertised_with_tls_where_the_listener_speaks_it(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("tls_cert", "tls_key", "tls_ca")}
    assert ProcessSettings(advertise="fd00::7", **files).advertised(8700) == "https://[fd00::7]:8700"


@pytest.mark.parametrize(
    "url",
    [
        "agent-1:8700", "fd00::g", "http://fd00::1", "http://a:port", "http://:8700", "ftp://a:1", "http://[a",
        "0.0.0.0", "::", "http://0.0.0.0:8700", "http://[::]:8700",
    ],
)  # fmt: skip
def test_a_url_that_no_peer_can_call_is_refused_by_who_would_advertise_it(url: str) -> None:
    """It registered, looked healthy, and was told by the others alone: not a URL."""
    with pytest.raises(ValueError, match="advertise"):
        ProcessSettings(advertise=url)


class Released(MemoryStore):
    """An etcd of one release; None: one that does not say."""

    def __init__(self, version: str | None) -> None:
        super().__init__()
        self._version = version

    async def state(self, *, timeout_s: float = 2.0) -> StoreState:
        if self._version is None:
            raise StoreRejected("etcd: permission denied")
        return StoreState((MemberState("http://etcd:2379", self._version, 1 << 20, 1 << 20),))


@pytest.mark.parametrize("version", ["3.5.0", "3.5.1", "3.5.2"])
async def test_an_etcd_that_may_corrupt_its_data_is_told_or_refused(version: str) -> None:
    with capture_logs() as lines:
        await check_etcd(EtcdUpkeep(Released(version)), ProcessSettings())
    assert [line["event"] for line in lines] == ["etcd_unsafe"]
    with pytest.raises(ConfigError, match=f"etcd {version} may corrupt its data; run 3.5.3"):
        await check_etcd(EtcdUpkeep(Released(version)), ProcessSettings(etcd_unsafe="refuse"))


@pytest.mark.parametrize("version", ["3.4.23", "3.5.3", "3.5.26", "3.6.8", "", None])
async def test_another_etcd_is_fine_and_one_that_does_not_say_is_no_reason_to_stop(version: str | None) -> None:
    with capture_logs() as lines:
        await check_etcd(EtcdUpkeep(Released(version)), ProcessSettings(etcd_unsafe="refuse"))
    assert all(line["event"] == "etcd_state_unknown" for line in lines)
