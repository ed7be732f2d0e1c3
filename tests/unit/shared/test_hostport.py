"""Hosts and ports are written in one way, and read where they have one meaning: IPv4, IPv6 with and without a zone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.hostport import bare_host, host_part, join_host_port, server_of, split_host_port, url_of

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:7070", ("127.0.0.1", 7070)),
        ("localhost:0", ("localhost", 0)),
        ("[::]:8080", ("::", 8080)),
        ("[fd00::7]:8700", ("fd00::7", 8700)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
        ("[::ffff:10.0.0.7]:80", ("::ffff:10.0.0.7", 80)),
        (":8700", ("", 8700)),
        ("fd00::7:8700", ("fd00::7", 8700)),
        ("::1:8700", ("::1", 8700)),
    ],
)
def test_host_and_port_are_read(text: str, expected: tuple[str, int]) -> None:
    assert split_host_port(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "7070", "a", "a:b", "a:70000", "a:-1", "[a]:1", "[::1]", "[::1:1", "::1]:1", "fd00::g:1", "a/b:1", "http://a:1",
     "a b:1", "u@a:1", "a:1/", "[]:1", "::"],
)  # fmt: skip
def test_what_is_no_host_and_port_is_refused_with_the_setting(text: str) -> None:
    with pytest.raises(ValueError, match=r"admin_listen: .* is not HOST:PORT"):
        split_host_port(text, "admin_listen")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "fd00::7", "::1", "fe80::1%eth0", "::ffff:10.0.0.7"])
def test_what_is_written_is_read_back(host: str) -> None:
    assert split_host_port(join_host_port(host, 8700)) == (host, 8700)
    found = server_of(url_of("https", host, 8700))
    assert (found.scheme, found.host, found.port) == ("https", host, 8700)
    assert server_of(url_of("https", host)).port is None


def test_a_zone_is_escaped_in_a_url_alone() -> None:
    assert url_of("http", "fe80::1%eth0", 80) == "http://[fe80::1%25eth0]:80"
    assert join_host_port("fe80::1%eth0", 80) == "[fe80::1%eth0]:80"
    assert server_of("http://[fe80::1%eth0]:80").host == server_of("http://[fe80::1%25eth0]:80").host == "fe80::1%eth0"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://10.0.0.1:6443", ("https", "10.0.0.1", 6443, "")),
        ("HTTPS://[fd00::1]:6443/k8s/c-1", ("https", "fd00::1", 6443, "/k8s/c-1")),
        ("https://[fd00::1]", ("https", "fd00::1", None, "")),
        ("http://me:p@ss@proxy:3128/", ("http", "proxy", 3128, "/")),
        ("http://fd00::1:8700", ("http", "fd00::1", 8700, "")),
        ("http://a?x=1", ("http", "a", None, "?x=1")),
    ],
)
def test_a_url_says_where_it_leads(url: str, expected: tuple[object, ...]) -> None:
    assert tuple(server_of(url)) == expected


@pytest.mark.parametrize(
    "url", ["", "10.0.0.1:6443", "ftp://h", "http://", "http://h:x", "http://h:0", "http://[::1", "http://fd00::1",
            "http://::1", "http://[h]:1", "http://h h", "http://h:99999", "http://%zz"]
)  # fmt: skip
def test_what_leads_nowhere_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"http"):
        server_of(url)


def test_a_bare_host_is_an_address_or_a_name() -> None:
    hosts = ["10.0.0.7", "fd00::7", "[fd00::7]", "agent-1", "a:1", "[a]", "", "a/b", "fd00::7]"]
    assert [bare_host(host) for host in hosts] == ["10.0.0.7", "fd00::7", "fd00::7", "agent-1", "", "", "", "", ""]


def test_the_host_of_an_instance_is_what_stands_before_its_port() -> None:
    instances = ["node-1:9100", "10.0.0.7:9100", "[fd00::7]:9100", "fd00::7", "node-1", "a:b:c", ""]
    assert [host_part(one) for one in instances] == ["node-1", "10.0.0.7", "fd00::7", "fd00::7", "node-1", "", ""]


def test_nobody_else_puts_a_host_and_a_port_together() -> None:
    """Each place that did wrote IPv6 in a way of its own, and most of them a wrong one."""
    by_hand = re.compile(
        r"\{[\w.]*(?:host|address|ip|named)\}:\{|://\{[\w.]*(?:host|address|ip|name)\}|\[\{(?:host|address|ip|named)\}\]",
        re.IGNORECASE,
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("lab", "services", "shared", "twin")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "hostport.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if by_hand.search(line)
    ]
    assert found == []
