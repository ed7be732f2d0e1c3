"""Whatever a client sends to whatever kind: an answer or a refusal, never a crash.

Objects are drawn at random along the Go types, so that they decode and reach defaulting, admission, validation and
printing with fields missing, empty, odd or repeated.
"""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import pytest

from twin.kinds.rules.codec import TYPES
from twin.kinds.rules.typed import TypedStrategy
from twin.kinds.table import all_strategies
from twin.registry import creating, updating
from twin.registry.status import ApiError

Json = dict[str, Any]

_TEXTS = (
    "",
    "a",
    "a",
    "b",
    "A b",
    "x/y",
    "example.com/gpu",
    "Always",
    "Never",
    "None",
    "In",
    "Exists",
    "TCP",
    "50%",
    "v1",
)
_QUANTITIES = ("0", "1", "500m", "1Gi", "-1", "0.0001")
_KEYS = ("a", "cpu", "memory", "example.com/gpu", "storage", "bad key", "hugepages-2Mi")
_SCALARS: dict[str, Any] = {
    "string": _TEXTS,
    "bool": (True, False),
    "int32": (0, 1, -1, 80, 70000),
    "int64": (0, 1, -1, 30, 2**40),
    "float": (0, 1.5),
    "quantity": _QUANTITIES,
    "intstr": (0, 1, "25%", "web", "", "x%"),
    "time": ("2026-01-01T00:00:00Z",),
    "microtime": ("2026-01-01T00:00:00.000000Z",),
    "bytes": ("", "Yg=="),
    "raw": (None, {}, {"a": 1}),
}
CASES = [s for s in all_strategies() if isinstance(s, TypedStrategy) and "create" in s.info.verbs]
DRAWS = 60


def draw(rng: Random, kind: str, depth: int, skip: float) -> Any:
    kind = kind.lstrip("*")
    if kind in _SCALARS:
        return rng.choice(_SCALARS[kind])
    if kind.startswith("[]"):
        return [draw(rng, kind[2:], depth + 1, skip) for _ in range(rng.choice((0, 1, 1, 2)))] if depth < 9 else []
    if kind.startswith("{}"):
        keys = rng.sample(_KEYS, rng.choice((0, 1, 2)))
        return {key: draw(rng, kind[2:], depth + 1, skip) for key in keys}
    fields = TYPES.fields(kind).items()
    chosen = [(name, field) for name, field in fields if rng.random() > skip] if depth < 8 else []
    return {
        name: rng.choice((None, draw(rng, field, depth + 1, skip)))
        if rng.random() < 0.1
        else draw(rng, field, depth + 1, skip)
        for name, field in chosen
    }


def drawn(rng: Random, strategy: TypedStrategy, ctx: Any) -> Json:
    """A random object as it is after decoding and defaulting."""
    obj: Json = draw(rng, strategy.go_type, 0, rng.choice((0.3, 0.6, 0.9)))
    obj["metadata"] = {"name": "x"}
    strategy.decode(obj, ctx)
    strategy.default(obj)
    obj = strategy.to_storage(obj)
    obj["metadata"].update(uid="u", namespace="ns", creationTimestamp="2026-01-01T00:00:00Z")
    return obj


def context_of(cluster: Any, strategy: TypedStrategy) -> tuple[Any, Any]:
    info = strategy.info
    kind = next(one for one in cluster.registry.kinds_of(info.group, info.version) if one.info.plural == info.plural)
    return kind, cluster.registry.context("create", kind, "ns" if info.namespaced else "", "x")


@pytest.mark.parametrize("strategy", CASES, ids=lambda s: f"{s.info.api_version}/{s.info.plural}")
def test_no_object_crashes_the_hooks_of_a_kind(cluster: Any, strategy: TypedStrategy) -> None:
    _, ctx = context_of(cluster, strategy)
    rng = Random(strategy.info.plural)
    for _ in range(DRAWS):
        old, new = drawn(rng, strategy, ctx), drawn(rng, strategy, ctx)
        with contextlib.suppress(ApiError):
            strategy.prepare_for_create(old, ctx)
            strategy.validate(old, ctx)
            strategy.warnings(old, None, ctx)
            if "status" in old:
                new["status"] = old["status"]
            strategy.prepare_for_update(new, old, ctx)
            strategy.validate_update(new, old, ctx)
        written = drawn(rng, strategy, ctx)
        with contextlib.suppress(ApiError):
            strategy.prepare_for_status_update(written, old, ctx)
            strategy.validate_status_update(written, old, ctx)


@pytest.mark.parametrize("strategy", CASES, ids=lambda s: f"{s.info.api_version}/{s.info.plural}")
def test_what_is_accepted_can_be_shown(cluster: Any, strategy: TypedStrategy) -> None:
    rng = Random(strategy.info.plural)
    for number in range(DRAWS):
        kind, ctx = context_of(cluster, strategy)
        body = draw(rng, strategy.go_type, 0, 0.8)
        body["metadata"] = {"name": f"n{number}"}
        with contextlib.suppress(ApiError):
            stored = creating.create(cluster.registry, ctx, kind, body)
            shown = kind.shown(stored).obj
            assert len(strategy.table_cells(shown, cluster.now_s)) == len(strategy.table_columns)
            strategy.selectable_fields(stored.obj)


@pytest.mark.parametrize("strategy", CASES, ids=lambda s: f"{s.info.api_version}/{s.info.plural}")
def test_writing_back_what_was_read_changes_nothing(cluster: Any, strategy: TypedStrategy) -> None:
    rng = Random(strategy.info.plural)
    for number in range(DRAWS):
        kind, ctx = context_of(cluster, strategy)
        body = draw(rng, strategy.go_type, 0, 0.8)
        body["metadata"] = {"name": f"n{number}"}
        with contextlib.suppress(ApiError):
            stored = creating.create(cluster.registry, ctx, kind, body)
            read = kind.shown(stored).fresh()
            ctx.verb = "update"
            assert updating.update(cluster.registry, ctx, kind, stored, read).revision == stored.revision
