"""Which server is reached through which proxy: as Go's httpproxy has it (its own cases, among others)."""

from __future__ import annotations

import pytest

from shared.adapters.http.proxies import proxied, proxy_from_environment
from shared.errors import ConfigError
from shared.hostport import server_of

PROXY = "http://proxy.corp:3128"


@pytest.mark.parametrize(
    ("environ", "url", "expected"),
    [
        ({}, "https://api:6443", None),
        ({"HTTPS_PROXY": PROXY}, "https://api:6443", PROXY),
        ({"https_proxy": PROXY}, "https://api:6443", PROXY),
        ({"HTTPS_PROXY": PROXY}, "http://api:8080", None),
        ({"HTTP_PROXY": PROXY}, "http://api:8080", PROXY),
        ({"HTTP_PROXY": PROXY}, "https://api:6443", None),
        ({"HTTPS_PROXY": "proxy.corp:3128"}, "https://api:6443", PROXY),
        ({"HTTPS_PROXY": "http://[fd00::3]:3128"}, "https://[fd00::1]:6443", "http://[fd00::3]:3128"),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, "https://api:6443", None),
        ({"HTTPS_PROXY": PROXY, "no_proxy": ".svc,api"}, "https://api:6443", None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "", "no_proxy": "api"}, "https://api:6443", None),
        ({"ALL_PROXY": PROXY}, "https://api:6443", None),
    ],
)
def test_the_environment_names_a_proxy(environ: dict[str, str], url: str, expected: str | None) -> None:
    assert proxy_from_environment(url, environ) == expected


@pytest.mark.parametrize(
    ("no_proxy", "url", "through"),
    [
        ("", "https://api.example.com", True),
        ("", "https://localhost:6443", False),
        ("", "https://127.0.0.1:6443", False),
        ("", "https://127.9.9.9:6443", False),
        ("", "https://[::1]:6443", False),
        ("", "https://[::ffff:127.0.0.1]:6443", False),
        ("example.com", "https://example.com", False),
        ("example.com", "https://api.example.com", False),
        ("example.com", "https://notexample.com", True),
        (".example.com", "https://example.com", True),
        (".example.com", "https://api.example.com", False),
        ("*.example.com", "https://api.example.com", False),
        ("*.example.com", "https://example.com", True),
        ("EXAMPLE.com", "https://Api.Example.COM", False),
        ("example.com:443", "https://example.com", False),
        ("example.com:6443", "https://example.com", True),
        ("other, example.com ", "https://example.com", False),
        ("*", "https://example.com", False),
        ("a,*", "https://example.com", False),
        ("10.96.0.1", "https://10.96.0.1", False),
        ("10.96.0.1", "https://10.96.0.11", True),
        ("10.96.0.1:443", "https://10.96.0.1", False),
        ("10.96.0.1:444", "https://10.96.0.1", True),
        ("10.96.0.0/12", "https://10.96.0.1", False),
        ("10.96.0.7/12", "https://10.111.0.1", False),
        ("10.96.0.0/12", "https://10.112.0.1", True),
        ("10.96.0.0/12", "https://api", True),
        ("10.96.0.0/12", "https://[::ffff:10.96.0.1]", False),
        ("fd00::/8", "https://[fd12::1]:6443", False),
        ("fd00::/8", "https://[2001:db8::1]:6443", True),
        ("fd00::1", "https://[fd00:0::1]:6443", False),
        ("[fd00::1]", "https://[fd00::1]:6443", False),
        ("[fd00::1]:6443", "https://[fd00::1]:6443", False),
        ("[fd00::1]:443", "https://[fd00::1]:6443", True),
        ("::ffff:10.0.0.1", "https://10.0.0.1", False),
        (":443", "https://api", True),
        ("10.0.0.0/99", "https://10.0.0.1", True),
        (",,", "https://api", True),
    ],
)
def test_no_proxy_means_names_addresses_networks_and_ports(no_proxy: str, url: str, through: bool) -> None:
    assert proxied(server_of(url), no_proxy) is through


@pytest.mark.parametrize("value", ["socks5://me:secret@p:1080", "ftp://p", "http://p:x", "http://"])
def test_a_proxy_that_cannot_be_used_is_named_with_its_variable_and_a_remedy(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^HTTPS_PROXY: .* no URL of a proxy.*http://proxy:3128$") as caught:
        proxy_from_environment("https://api", {"HTTPS_PROXY": value})
    assert "secret" not in str(caught.value)
    assert ("SOCKS is not spoken" in str(caught.value)) is value.startswith("socks")
