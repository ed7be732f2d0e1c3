"""Ways out for sensors: each target's addresses with its port, a Service's pods, and never this machine or the link."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from services.coordinator.usage.target_egress import MOST_ADDRESSES, is_host, names_of, rules
from shared.kube.nodes.latency_targets import LatencyTarget

SHOP = LatencyTarget("shop", "shop.example.com", 443)
BANK = LatencyTarget("bank", "api.money.svc", 8443)
SOUTH = LatencyTarget("south", region="south")
PODS = {("money", "api"): {"app": "api", "tier": "front"}}


def selector_of(namespace: str, name: str) -> dict[str, str] | None:
    return PODS.get((namespace, name))


def seen(**hosts: Iterable[str]) -> dict[str, dict[str, float]]:
    """Where hosts (``.`` as ``_``) lead, all of it seen at once."""
    return {host.replace("_", "."): dict.fromkeys(addresses, 0.0) for host, addresses in hosts.items()}


def test_an_address_is_opened_with_its_port_and_nothing_else() -> None:
    found, problems = rules([SHOP], seen(shop_example_com=["192.0.2.7", "2001:db8::7"]), selector_of)
    assert problems == {}
    blocks = [{"ipBlock": {"cidr": "192.0.2.7/32"}}, {"ipBlock": {"cidr": "2001:db8::7/128"}}]
    assert found == [{"to": blocks, "ports": [{"protocol": "TCP", "port": 443}]}]


def test_an_address_of_ipv4_in_ipv6_is_opened_as_what_it_is() -> None:
    found, _ = rules([SHOP], seen(shop_example_com=["::ffff:192.0.2.7", "192.0.2.7"]), selector_of)
    assert [one["to"] for one in found] == [[{"ipBlock": {"cidr": "192.0.2.7/32"}}]]


@pytest.mark.parametrize("host", ["api.money.svc", "api.money.svc.cluster.local", "Api.money.SVC.cluster.local."])
def test_a_service_is_opened_by_the_pods_behind_it(host: str) -> None:
    found, problems = rules([LatencyTarget("bank", host, 8443)], {}, selector_of)
    assert problems == {}
    assert found == [
        {
            "to": [
                {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "money"}},
                    "podSelector": {"matchLabels": {"app": "api", "tier": "front"}},
                }
            ]
        }
    ]


@pytest.mark.parametrize("host", ["api.money.svc.example.com", "api.money.svc.clusterset.local", "api.money.svcs"])
def test_a_name_of_the_world_that_looks_like_a_service_is_none(host: str) -> None:
    target = LatencyTarget("bank", host, 8443)
    assert names_of([target]) == {host}
    found, _ = rules([target], {host: {"203.0.113.9": 0.0}}, selector_of)
    assert "podSelector" not in str(found)
    assert "203.0.113.9/32" in str(found)


@pytest.mark.parametrize("host", ["db.money.svc", "DB.money.svc", "db.money.svc.cluster.local"])
def test_a_service_that_selects_no_pods_is_not_opened_whoever_writes_its_endpoints(host: str) -> None:
    """An ExternalName, or endpoints by hand: a user of that namespace would say where sensors of all nodes get out."""
    other = LatencyTarget("outside", host, 5432)
    assert names_of([BANK, other, SHOP, SOUTH]) == {"shop.example.com"}
    found, problems = rules([other], {host: {"203.0.113.9": 0.0}}, selector_of)
    assert found == []
    why = "there is no Service money/db with a selector; no way out is opened for it"
    assert problems == {"outside": why}


def test_a_region_needs_no_way_out() -> None:
    assert rules([SOUTH], {}, selector_of) == ([], {})


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "ff02::1", "0.0.0.0", "::", "255.255.255.255",
        "::ffff:169.254.169.254", "::ffff:127.0.0.1", "nonsense", "10.0.0.0/8", "fd00:ec2::254", "fd00:ec2::23",
        "fd20:ce::254", "168.63.129.16", "100.100.100.200", "::ffff:168.63.129.16", "64:ff9b::a9fe:a9fe",
    ],
)  # fmt: skip
def test_this_machine_and_the_link_are_never_opened_whoever_names_them(address: str) -> None:
    found, problems = rules([SHOP], seen(shop_example_com=[address]), selector_of)
    assert found == []
    assert problems["shop"].endswith("no way out is opened for it")
    assert not is_host(address)


def test_without_that_check_a_target_would_open_the_clouds_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The safeguard switched off."""
    monkeypatch.setattr("services.coordinator.usage.target_egress.is_host", lambda _: True)
    found, _ = rules([SHOP], seen(shop_example_com=["169.254.169.254"]), selector_of)
    assert "169.254.169.254/32" in str(found)


def test_targets_come_in_one_order_and_a_name_opens_no_more_than_a_bound() -> None:
    where = seen(shop_example_com=[f"192.0.2.{number}" for number in range(200)])
    found, _ = rules([SHOP, BANK], where, selector_of)
    assert rules([BANK, SHOP], where, selector_of)[0] == found
    assert len(found[1]["to"]) == MOST_ADDRESSES


def test_of_more_addresses_than_are_opened_those_count_where_the_name_leads_now() -> None:
    where = {"shop.example.com": {f"192.0.2.{number}": float(number) for number in range(200)}}
    (found,), _ = rules([SHOP], where, selector_of)
    newest = {f"192.0.2.{number}/32" for number in range(200 - MOST_ADDRESSES, 200)}
    assert {one["ipBlock"]["cidr"] for one in found["to"]} == newest


def test_a_name_that_leads_nowhere_is_named_and_the_others_go_on() -> None:
    found, problems = rules([SHOP, BANK], seen(shop_example_com=[]), selector_of)
    assert (len(found), problems) == (1, {"shop": "shop.example.com leads nowhere; no way out is opened for it"})


def test_of_a_name_that_nobody_has_answered_for_nothing_is_said_yet() -> None:
    assert rules([SHOP], {}, selector_of) == ([], {})
