"""Validation of resource names and amounts: containers, pods, nodes, quotas and limit ranges share it.

Source: ``pkg/apis/core/validation`` (ValidateContainerResourceRequirements and friends) and ``pkg/apis/core/helper``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from twin.kinds.rules.names import qualified_name
from twin.kinds.rules.quantity import QuantityError, nanos, parse
from twin.registry.status import FieldError, forbidden_field, invalid, required

Json = dict[str, Any]

_STANDARD_CONTAINER = frozenset(("cpu", "memory", "ephemeral-storage"))
_COUNTED = frozenset(
    (
        "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
        "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
    )
)  # fmt: skip
_STANDARD = (
    _STANDARD_CONTAINER
    | _COUNTED
    | {
        "storage", "requests.cpu", "requests.memory", "requests.storage", "requests.ephemeral-storage",
        "limits.cpu", "limits.memory", "limits.ephemeral-storage",
    }
)  # fmt: skip


def is_huge_pages(name: str) -> bool:
    """``hugepages-SIZE``."""
    return name.startswith("hugepages-")


def is_native(name: str) -> bool:
    """Kubernetes' own: no domain, or one of kubernetes.io."""
    return "/" not in name or "kubernetes.io/" in name


@lru_cache(maxsize=4096)
def is_extended(name: str) -> bool:
    """A device or another countable resource of a domain."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not qualified_name(f"requests.{name}")


def may_overcommit(name: str) -> bool:
    """Limits may exceed requests."""
    return is_native(name) and not is_huge_pages(name)


@lru_cache(maxsize=4096)
def _name_messages(name: str) -> tuple[str, ...]:
    found = qualified_name(name)
    if found:
        return tuple(found)
    if (
        "/" not in name
        and name not in _STANDARD
        and not is_huge_pages(name)
        and not name.startswith("requests.hugepages-")
    ):
        return ("must be a standard resource type or fully qualified",)
    return ()


@lru_cache(maxsize=4096)
def _container_name_messages(name: str) -> tuple[str, ...]:
    found = list(_name_messages(name))
    if "/" not in name:
        if name not in _STANDARD_CONTAINER and not is_huge_pages(name):
            found.append("must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        found.append("doesn't follow extended resource name standard")
    return tuple(found)


def check_resource_name(name: str, field: str) -> list[FieldError]:
    """validateResourceName."""
    return [invalid(field, name, message) for message in _name_messages(name)]


def check_amount(name: str, amount: str, field: str) -> list[FieldError]:
    """ValidateResourceQuantityValue: not negative, whole where the resource is counted."""
    value = nanos(amount)
    found = []
    if value < 0:
        found.append(invalid(field, amount, "must be greater than or equal to 0"))
    if value % 1_000_000_000 and (name in _COUNTED or is_extended(name)):
        found.append(invalid(field, amount, "must be an integer"))
    return found


def check_not_negative_amount(amount: str, field: str) -> list[FieldError]:
    """ValidateNonnegativeQuantity."""
    return [invalid(field, amount, "must be greater than or equal to 0")] if nanos(amount) < 0 else []


def _check_huge_page_multiple(name: str, amount: str, field: str) -> list[FieldError]:
    try:
        size = parse(name.removeprefix("hugepages-")).nanos
    except QuantityError:
        return []
    if size and nanos(amount) % size:
        return [invalid(field, amount, f"{amount} is not positive integer multiple of {name}")]
    return []


def check_requirements(resources: Json, field: str) -> list[FieldError]:
    """ValidateContainerResourceRequirements."""
    limits, requests = resources.get("limits"), resources.get("requests")
    if not limits and not requests:
        return []
    limits, requests = limits or {}, requests or {}
    found: list[FieldError] = []
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            here = f"{field}.{part}[{name}]"
            found += [invalid(here, name, message) for message in _container_name_messages(name)]
            found += check_amount(name, amount, here)
            if is_huge_pages(name):
                found += _check_huge_page_multiple(name, amount, here)
            if part == "requests":
                found += _check_against_limit(name, amount, limits.get(name), field)
    names = limits.keys() | requests.keys()
    if any(is_huge_pages(name) for name in names) and not names & {"cpu", "memory"}:
        found.append(forbidden_field(field, "HugePages require cpu or memory"))
    return found


def _check_against_limit(name: str, amount: str, limit: str | None, field: str) -> list[FieldError]:
    if limit is None:
        if not may_overcommit(name):
            return [required(f"{field}.limits", "Limit must be set for non overcommitable resources")]
        return []
    if not may_overcommit(name):
        if nanos(amount) != nanos(limit):
            return [invalid(f"{field}.requests", amount, f"must be equal to {name} limit of {limit}")]
    elif nanos(amount) > nanos(limit):
        return [invalid(f"{field}.requests", amount, f"must be less than or equal to {name} limit of {limit}")]
    return []
