"""No text of a user's is in a hidden file, wherever it stood: every field of every kind is filled with a mark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import pytest

from services.cli.snapshot.reading import document
from shared.kube import pseudonyms
from shared.kube.pseudonyms import READ_ANNOTATIONS
from shared.wire.snapshot import DECIDING, MeshFacts, SnapshotInput, decode_snapshot, encode_snapshot

MARK = "zq7"
Json = dict[str, Any]
AT = "2026-11-29T05:00:00.000+00:00"
FORMS = ("zq7", "zq7-prod-11112222", "zq7.acme.corp/payroll", "a/zq7/b", "Zq7 said: zq7=1", "zq7@9", "zq7:1", "1.zq7")
TEXTS = ('device.attributes["zq7"].zq7 == "zq7"', "device.attributes['a'].b.matches('\\\\zq7')", "zq7 + 'x", 'r"zq7"')
KEYS = ("zq7", "zq7.acme.corp/x", "acme.node-restriction.kubernetes.io/zq7")


def filled(kind: Any, text: str, key: str, field: str = "", depth: int = 0) -> Any:
    """A value of this type, every text of it the given one."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if depth > 14:
            return {}
        return {
            one.encode_name: value
            for one in msgspec.structs.fields(kind)
            if (value := filled(one.type, text, key, one.encode_name, depth + 1)) is not None
        }
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return filled(next(part for part in parts if part is not type(None)), text, key, field, depth)
    if origin is Literal:
        return parts[0]
    if origin in (list, tuple):
        return [filled(parts[0], text, key, field, depth + 1)] * (
            len(parts) if origin is tuple and ... not in parts else 1
        )
    if origin is dict:
        keys = (*READ_ANNOTATIONS, key) if field == "annotations" else (key,)
        return {one: filled(parts[1], text, key, field, depth + 1) for one in keys}
    if kind is Any:
        return {key: [text, {key: text}]}
    return {str: text, int: 7, float: 7.0, bool: True}.get(kind)


def written(text: str, key: str) -> str:
    objects = filled(SnapshotInput, text, key)
    objects.pop("cycles")
    for one in objects["deviceClasses"]:
        one["spec"]["config"] = [{"opaque": {"parameters": {"password": text}}}]
    mesh = filled(MeshFacts, text, key)
    mesh["settings"] = {name: text for name in DECIDING if name in ("gpu_shares", "scheduler_name")} | {key: text}
    mesh["policy"] = "lb"
    for ref in ("active", "candidate", "previous"):
        mesh["pointer"][ref] |= {"name": "lb", "members": [], "sha256": ""}
    mesh["pointer"]["stage"] = "canary"
    head, _ = document(objects, mesh, [], hashed=True, at=AT, kubernetes="v1.36.2")
    return json.dumps(head)


def places(found: Any, path: str = "") -> Iterator[str]:
    if isinstance(found, dict):
        for key, value in found.items():
            if MARK in key.lower():
                yield f"{path}.{key} (key)"
            yield from places(value, f"{path}.{key}")
    elif isinstance(found, list):
        for value in found:
            yield from places(value, f"{path}[]")
    elif isinstance(found, str) and MARK in found.lower():
        yield f"{path}: {found}"


@pytest.mark.parametrize("key", KEYS)
def test_a_text_of_a_users_is_nowhere_in_the_file_whichever_field_held_it(key: str) -> None:
    for text in (*FORMS, *TEXTS):
        assert not list(places(json.loads(written(text, key)))), text


def test_without_the_list_of_words_texts_would_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The safeguard switched off: a field of an API's words is taken for public, as it is."""
    monkeypatch.setattr(pseudonyms, "WORDS", frozenset(FORMS))
    assert MARK in written(FORMS[0], KEYS[0])


def test_what_was_decided_stays_readable() -> None:
    """The mark's own places: a filled file is still a snapshot."""
    objects = {"nodes": [{"metadata": {"name": "zq7"}}], "pods": []}
    head, names = document(objects, {"drained": ["zq7"]}, [], hashed=True, at=AT, kubernetes="")
    snapshot = decode_snapshot(encode_snapshot(head), "file")
    assert snapshot.mesh is not None
    assert snapshot.mesh.drained == [names["zq7"]]


def test_a_pod_that_a_budget_counts_as_disrupted_is_known_again() -> None:
    objects = {
        "pods": [{"metadata": {"name": "payroll-0"}}],
        "pdbs": [{"metadata": {"name": "b"}, "status": {"disruptedPods": {"payroll-0": AT}}}],
    }
    head, names = document(objects, None, [], hashed=True, at=AT, kubernetes="")
    assert head["input"]["pdbs"][0]["status"]["disruptedPods"] == {names["payroll-0"]: AT}


def test_a_selector_of_devices_means_what_it_meant() -> None:
    device = {"name": "d0", "attributes": {"acme.corp/tier": {"string": "gold"}, "model": {"string": "zq7"}}}
    expression = 'device.driver == "acme.corp" && device.attributes["acme.corp"].tier == "gold" && 2 > 1'
    objects = {
        "resourceSlices": [{"metadata": {"name": "s"}, "spec": {"driver": "acme.corp", "devices": [device]}}],
        "deviceClasses": [{"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}],
    }
    head, names = document(objects, None, [], hashed=True, at=AT, kubernetes="")
    domain, tier, gold = (names[one] for one in ("acme.corp", "tier", "gold"))
    (found,) = head["input"]["resourceSlices"][0]["spec"]["devices"]
    assert found["attributes"] == {f"{domain}/{tier}": {"string": gold}, "model": {"string": names["zq7"]}}
    assert head["input"]["resourceSlices"][0]["spec"]["driver"] == domain
    assert head["input"]["deviceClasses"][0]["spec"]["selectors"][0]["cel"]["expression"] == (
        f'device.driver == "{domain}" && device.attributes["{domain}"].{tier} == "{gold}" && 2 > 1'
    )
