"""Settings: who wins, what is refused and how the refusal reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from shared.errors import ConfigError
from shared.runtime.observe.masking import MASK, effective
from shared.runtime.process.embedded_etcd import BINARY_ENV
from shared.runtime.process.settings import describe, load, parse_flags


@dataclass(frozen=True)
class Http:
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """TCP port; 0 takes a free one."""
    host: str = "127.0.0.1"
    """Address to listen on."""


@dataclass(frozen=True)
class Settings:
    http: Http = field(default_factory=Http)
    lease_ttl_s: Annotated[float, msgspec.Meta(gt=0)] = 3.0
    """TTL of the lease."""
    renew_s: float = 1.0
    """Between renewals."""
    peers: tuple[str, ...] = ()
    """URLs."""
    token_file: Path | None = None
    """Where the token is."""
    mode: Literal["fast", "safe"] = "safe"
    """Which way."""
    verbose: bool = False
    """More lines."""
    password: str = field(default="", metadata={"secret": True})
    """A secret, for this test."""

    def __post_init__(self) -> None:
        if self.renew_s >= self.lease_ttl_s:
            raise ValueError("renew_s: must be below lease_ttl_s")


def refused(**arguments: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(Settings, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def toml(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "conclave.toml"
    file.write_text(text)
    return file


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path):
    file = toml(tmp_path, "lease_ttl_s = 10\nrenew_s = 2\n[http]\nport = 1\nhost = 'a'\n")
    environ = {"CONCLAVE_HTTP_PORT": "2", "CONCLAVE_RENEW_S": "3"}
    loaded = load(Settings, file=file, environ=environ, flags={"http.port": "4"})
    assert (loaded.http.port, loaded.http.host, loaded.renew_s, loaded.lease_ttl_s) == (4, "a", 3.0, 10.0)
    assert loaded.mode == "safe"


def test_text_becomes_what_the_field_says():
    loaded = load(
        Settings,
        environ={"CONCLAVE_PEERS": "http://a, http://b", "CONCLAVE_TOKEN_FILE": "/t", "CONCLAVE_VERBOSE": "true"},
    )
    assert (loaded.peers, loaded.token_file, loaded.verbose) == (("http://a", "http://b"), Path("/t"), True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"flags": {"http.prot": 1}}, "did you mean --http-port?"),
        ({"environ": {"CONCLAVE_LEASE_TTL": "1"}}, "did you mean CONCLAVE_LEASE_TTL_S?"),
    ],
    ids=["flag", "environment"],
)
def test_an_unknown_key_is_an_error_with_the_nearest_known(arguments: dict[str, object], expected: str):
    assert expected in refused(**arguments)


def test_an_unknown_key_in_a_file_names_file_and_key(tmp_path: Path):
    message = refused(file=toml(tmp_path, "[http]\nprot = 1\n"))
    assert "conclave.toml: http.prot: unknown setting; did you mean http.port?" in message


def test_bad_toml_names_the_line(tmp_path: Path):
    assert "line 1" in refused(file=toml(tmp_path, "port = = 1\n"))


def test_a_missing_file_is_named(tmp_path: Path):
    assert "none.toml: settings file cannot be read" in refused(file=tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"CONCLAVE_HTTP_PORT": "65536"}, "CONCLAVE_HTTP_PORT: '65536' cannot be used"),
        ({"CONCLAVE_HTTP_PORT": "eighty"}, "CONCLAVE_HTTP_PORT: 'eighty' cannot be used"),
        ({"CONCLAVE_LEASE_TTL_S": "0"}, "CONCLAVE_LEASE_TTL_S"),
        ({"CONCLAVE_LEASE_TTL_S": "nan"}, "CONCLAVE_LEASE_TTL_S"),
        ({"CONCLAVE_MODE": "quick"}, "CONCLAVE_MODE"),
        ({"CONCLAVE_RENEW_S": "5"}, "renew_s: must be below lease_ttl_s"),
    ],
)
def test_values_out_of_range_are_refused(environ: dict[str, str], expected: str):
    assert expected in refused(environ=environ)


def test_a_secret_is_not_repeated_in_an_error():
    assert "hunter2" not in refused(flags={"password": ["hunter2"]})


def test_a_service_reads_its_own_variables_and_skips_those_of_others():
    environ = {"CONCLAVE_AGENT_RENEW_S": "2", "CONCLAVE_BINDER_NO_SUCH": "1", "CONCLAVE_RENEW_S": "1.5"}
    assert load(Settings, service="agent", environ=environ).renew_s == 2.0
    with pytest.raises(ConfigError):
        load(Settings, service="agent", environ={"CONCLAVE_AGENT_NO_SUCH": "1"})


@dataclass(frozen=True)
class Sensing:
    sensor_network_mbits: float = 0.0
    """Of the links."""


def test_a_misspelt_setting_of_our_own_is_not_another_services_that_begins_so():
    with pytest.raises(ConfigError, match="did you mean CONCLAVE_SENSOR_NETWORK_MBITS"):
        load(Sensing, service="agent", environ={"CONCLAVE_SENSOR_NETWORK_MBIT": "1000"})
    of_sensors = ("NODE", "NETWORK", "PROBES_PER_S", "SENSOR_NETWORK", "SENSOR_NETWORK_MBITS", "NETWORK_MBITS")
    environ = {f"CONCLAVE_SENSOR_{name}": "5" for name in of_sensors}
    assert load(Sensing, service="agent", environ=environ).sensor_network_mbits == 5.0


def test_service_links_of_the_kubelet_are_not_settings():
    environ = {
        "CONCLAVE_COORDINATOR_SERVICE_HOST": "10.0.0.1",
        "CONCLAVE_ETCD_PORT_2379_TCP_ADDR": "10.0.0.2",
        "CONCLAVE_HTTP_PORT": "tcp://10.0.0.3:80",
    }
    assert load(Settings, environ=environ).http.port == 0


def test_what_names_the_operators_server_is_no_setting_of_a_service():
    environ = {"CONCLAVE_SERVER": "http://a:8701", "CONCLAVE_CONTEXTS": "/c.toml", "CONCLAVE_RENEW_S": "2"}
    assert load(Settings, environ=environ).renew_s == 2.0
    with pytest.raises(ConfigError, match="CONCLAVE_SERVERS"):
        load(Settings, environ={"CONCLAVE_SERVERS": "http://a:8701"})


def test_which_etcd_a_command_line_runs_is_no_setting_of_the_services_that_inherit_its_environment():
    environ = {BINARY_ENV: "/usr/bin/etcd", "CONCLAVE_RENEW_S": "2"}
    assert load(Settings, environ=environ).renew_s == 2.0


def test_flags_of_the_command_line():
    flags, file = parse_flags(Settings, ["--http-port=8", "--verbose", "--renew-s", "2", "--config", "x.toml"])
    assert flags == {"http.port": "8", "verbose": True, "renew_s": "2"}
    assert file == Path("x.toml")
    assert parse_flags(Settings, ["--no-verbose"])[0] == {"verbose": False}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--prot", "1"], "--prot: unknown flag"),
        (["port"], "unexpected argument"),
        (["--renew-s"], "value must follow"),
    ],
)
def test_flags_that_cannot_be_used(arguments: list[str], expected: str):
    with pytest.raises(ConfigError, match=expected):
        parse_flags(Settings, arguments)


def test_effective_values_mask_secrets_and_passwords_in_urls():
    loaded = load(Settings, flags={"password": "hunter2", "peers": ["http://u:hunter2@h/"], "token_file": "/t"})
    shown = effective(loaded)
    assert "hunter2" not in str(shown)
    assert (shown["password"], shown["peers"], shown["token_file"]) == (MASK, [f"http://u:{MASK}@h/"], "/t")


def test_every_field_has_its_text():
    assert all(text for _, text in describe(Settings))
    assert ("TCP port; 0 takes a free one.") in [text for _, text in describe(Settings)]
