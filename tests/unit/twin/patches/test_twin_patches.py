"""The three patch formats, by the examples of their specifications and of Kubernetes' own tests."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from twin.patches.json_patch import json_patch, merge_patch
from twin.patches.strategic_patch import strategic_patch
from twin.registry.status import ApiError

KEYS = {"conditions": "type", "containers": "name", "finalizers": ""}


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({"a": "foo"}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_examples_of_rfc_7386(document: Any, patch: Any, result: Any) -> None:
    assert merge_patch(document, patch) == result


def test_merge_patch_that_is_no_object_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        merge_patch({}, [1])
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["a"]}, [{"op": "add", "path": "/foo/0", "value": "b"}], {"foo": ["b", "a"]}),
        ({"foo": ["a"]}, [{"op": "add", "path": "/foo/-", "value": "b"}], {"foo": ["a", "b"]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
        ({"a": {"x": 1}, "b": {}}, [{"op": "move", "from": "/a/x", "path": "/b/y"}], {"a": {}, "b": {"y": 1}}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
        ({"a/b": 1, "m~n": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/m~0n"}], {}),
    ],
)
def test_json_patch_examples_of_rfc_6902(document: Any, patch: Any, result: Any) -> None:
    assert json_patch(document, patch) == result


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"op": "add"}, 400),
        ([{"op": "remove", "path": "/none"}], 422),
        ([{"op": "replace", "path": "/none", "value": 1}], 422),
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "add", "path": "/l/5", "value": 1}], 422),
        ([{"op": "frobnicate", "path": "/a"}], 422),
        ([{"op": "add", "path": "/a"}], 422),
        ([{"op": "add", "path": "", "value": 1}], 422),
    ],
)
def test_json_patch_that_does_not_apply_is_refused(patch: Any, code: int) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"a": 1, "l": []}, patch)
    assert refused.value.code == code


def conditions(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"conditions": [{"type": name, "status": status} for name, status in pairs]}


def test_strategic_lists_merge_by_key_new_elements_before_those_not_named() -> None:
    """The order a real server gives (recorded in pod-status-conditions)."""
    document = conditions(("Ready", "False"), ("Initialized", "True"))
    patched = strategic_patch(document, conditions(("ContainersReady", "True"), ("Ready", "True")), KEYS)
    assert patched == conditions(("ContainersReady", "True"), ("Ready", "True"), ("Initialized", "True"))


def test_strategic_set_element_order() -> None:
    document = conditions(("A", "1"), ("B", "1"), ("C", "1"))
    order = {"$setElementOrder/conditions": [{"type": "C"}, {"type": "A"}, {"type": "B"}]}
    assert strategic_patch(document, order, KEYS) == conditions(("C", "1"), ("A", "1"), ("B", "1"))


def test_strategic_delete_and_replace_directives() -> None:
    document = conditions(("A", "1"), ("B", "1"))
    deleted = strategic_patch(copy.deepcopy(document), {"conditions": [{"$patch": "delete", "type": "A"}]}, KEYS)
    assert deleted == conditions(("B", "1"))
    replaced = strategic_patch(document, {"conditions": [{"$patch": "replace"}, {"type": "Z", "status": "1"}]}, KEYS)
    assert replaced == conditions(("Z", "1"))
    assert strategic_patch({"l": {"a": 1}}, {"l": {"$patch": "replace", "b": 2}}, KEYS) == {"l": {"b": 2}}


def test_strategic_primitive_lists_are_sets() -> None:
    assert strategic_patch({"finalizers": ["a", "b"]}, {"finalizers": ["c"]}, KEYS) == {"finalizers": ["c", "a", "b"]}
    patch = {"$deleteFromPrimitiveList/finalizers": ["a"]}
    assert strategic_patch({"finalizers": ["a", "b"]}, patch, KEYS) == {"finalizers": ["b"]}


def test_strategic_list_without_a_key_is_replaced() -> None:
    assert strategic_patch({"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, KEYS) == {"taints": [{"key": "b"}]}


def test_strategic_retain_keys_drops_the_others() -> None:
    document = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
    patch = {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}
    assert strategic_patch(document, patch, KEYS) == {"strategy": {"type": "Recreate"}}


@pytest.mark.parametrize(
    ("patch", "code"),
    [([1], 400), ({"conditions": [{"status": "x"}]}, 500), ({"a": {"$patch": "odd"}}, 500), ({"conditions": [1]}, 500)],
)
def test_strategic_patch_that_cannot_be_applied_is_refused(patch: Any, code: int) -> None:
    with pytest.raises(ApiError) as refused:
        strategic_patch({"a": {"b": 1}, **conditions(("A", "1"))}, patch, KEYS)
    assert refused.value.code == code
