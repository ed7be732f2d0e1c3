"""What counts as a GPU, and as how much of one."""

from __future__ import annotations

import pytest

from shared.errors import ConfigError
from shared.model.gpu_shares import DEFAULT, DriverShare, offered, parse_gpu_shares


def test_a_whole_device_is_a_unit_of_either_makers_plugin_and_a_device_of_any_driver() -> None:
    assert DEFAULT.asked([("cpu", 4000), ("nvidia.com/gpu", 2)]) == (2, 1000)
    assert DEFAULT.asked([("amd.com/gpu", 1)]) == (1, 1000)
    assert DEFAULT.asked([("cpu", 4000)]) == (0, 0)
    assert DEFAULT.driver("gpu.example.com") == DriverShare(1000, "")


def test_a_unit_may_be_a_share_and_a_driver_may_be_none() -> None:
    shares = parse_gpu_shares("nvidia.com/gpu.shared=250, gpu.example.com:memory=1000,nic.example.com=0, a.b/c=0")
    assert shares.asked([("nvidia.com/gpu.shared", 1)]) == (1, 250)
    assert shares.asked([("nvidia.com/gpu.shared", 4)]) == (1, 1000)
    assert shares.asked([("nvidia.com/gpu.shared", 5)]) == (2, 1000)
    assert shares.asked([("nvidia.com/gpu", 1), ("a.b/c", 3)]) == (0, 0)
    assert shares.driver("gpu.example.com") == DriverShare(1000, "memory")
    assert shares.driver("nic.example.com").milli == 0


@pytest.mark.parametrize(
    ("units", "free", "milli", "expected"),
    [
        (4, 2, 1000, [1000, 1000, 0, 0]),
        (8, 3, 250, [750, 0]),
        (8, 7, 250, [1000, 750]),
        (8, 9, 250, [1000, 1000]),  # more free than there are: a node that shrank
        (8, -1, 250, [0, 0]),
        (7, 7, 142, [994]),
        (0, 0, 1000, []),
    ],
)
def test_free_units_are_taken_for_as_close_together_as_they_can_be(
    units: int, free: int, milli: int, expected: list[int]
) -> None:
    assert offered([milli], [units], [free]) == expected


def test_a_mig_device_is_so_many_sevenths_unless_the_user_says_otherwise() -> None:
    assert DEFAULT.asked([("nvidia.com/mig-3g.40gb", 1)]) == (1, 428)
    assert DEFAULT.asked([("nvidia.com/mig-1g.10gb", 7)]) == (1, 994)
    assert parse_gpu_shares("nvidia.com/mig-1g.6gb=250").asked([("nvidia.com/mig-1g.6gb", 1)]) == (1, 250)
    assert parse_gpu_shares("nvidia.com/mig-1g.6gb=0").asked([("nvidia.com/mig-1g.6gb", 1)]) == (0, 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nvidia.com/gpu", "'nvidia.com/gpu' is not RESOURCE=THOUSANDTHS"),
        ("nvidia.com/gpu=-1", "is not RESOURCE"),
        ("nvidia.com/gpu=1e3", "is not RESOURCE"),
        ("=5", "is not RESOURCE"),
        ("a.b/c=70000", "more than 64000"),
        ("a.b/c=1, a.b/c=2", "a.b/c is there twice"),
        ("d.e=1,d.e:memory=2", "d.e is there twice"),
        ("a.b/c:memory=1", "a resource has no capacities"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        parse_gpu_shares(text)
    assert str(caught.value).startswith("gpu_shares: ")
