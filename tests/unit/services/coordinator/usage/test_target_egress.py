"""Ways out for sensors: each target's addresses with its port, a Service's pods, and never this machine or the link."""

from __future__ import annotations

import pytest

from services.coordinator.usage.target_egress import MOST_ADDRESSES, is_host, names_of, rules
from shared.kube.latency_targets import LatencyTarget

SHOP = LatencyTarget("shop", "shop.example.com", 443)
BANK = LatencyTarget("bank", "api.money.svc", 8443)
SOUTH = LatencyTarget("south", region="south")
PODS = {("money", "api"): {"app": "api", "tier": "front"}}


def selector_of(namespace: str, name: str) -> dict[str, str] | None:
    return PODS.get((namespace, name))


def test_an_address_is_opened_with_its_port_and_nothing_else() -> None:
    found, problems = rules([SHOP], {"shop.example.com": {"192.0.2.7", "2001:db8::7"}}, selector_of)
    assert problems == {}
    blocks = [{"ipBlock": {"cidr": "192.0.2.7/32"}}, {"ipBlock": {"cidr": "2001:db8::7/128"}}]
    assert found == [{"to": blocks, "ports": [{"protocol": "TCP", "port": 443}]}]


@pytest.mark.parametrize("host", ["api.money.svc", "api.money.svc.cluster.local"])
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


def test_a_service_without_pods_of_its_own_is_opened_where_its_name_leads() -> None:
    other = LatencyTarget("outside", "db.money.svc", 5432)
    assert names_of([BANK, other, SHOP, SOUTH], selector_of) == {"db.money.svc", "shop.example.com"}
    found, _ = rules([other], {"db.money.svc": ["203.0.113.9"]}, selector_of)
    assert found == [{"to": [{"ipBlock": {"cidr": "203.0.113.9/32"}}], "ports": [{"protocol": "TCP", "port": 5432}]}]


def test_a_region_needs_no_way_out() -> None:
    assert rules([SOUTH], {}, selector_of) == ([], {})


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "ff02::1", "0.0.0.0", "::", "255.255.255.255",
        "::ffff:169.254.169.254", "::ffff:127.0.0.1", "nonsense", "10.0.0.0/8",
    ],
)  # fmt: skip
def test_this_machine_and_the_link_are_never_opened_whoever_names_them(address: str) -> None:
    found, problems = rules([SHOP], {"shop.example.com": [address]}, selector_of)
    assert found == []
    assert problems["shop"].endswith("no way out is opened for it")
    assert not is_host(address)


def test_without_that_check_a_target_would_open_the_clouds_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The safeguard switched off."""
    monkeypatch.setattr("services.coordinator.usage.target_egress.is_host", lambda _: True)
    found, _ = rules([SHOP], {"shop.example.com": ["169.254.169.254"]}, selector_of)
    assert "169.254.169.254/32" in str(found)


def test_targets_come_in_one_order_and_a_name_opens_no_more_than_a_bound() -> None:
    many = [f"192.0.2.{number}" for number in range(200)]
    where = {"shop.example.com": many}
    found, _ = rules([SHOP, BANK], where, selector_of)
    assert rules([BANK, SHOP], where, selector_of)[0] == found
    assert len(found[1]["to"]) == MOST_ADDRESSES


def test_a_name_that_leads_nowhere_is_named_and_the_others_go_on() -> None:
    found, problems = rules([SHOP, BANK], {}, selector_of)
    assert (len(found), problems) == (1, {"shop": "shop.example.com leads nowhere; no way out is opened for it"})
