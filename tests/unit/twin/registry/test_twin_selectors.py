"""Label and field selectors: every operator, and the messages of what does not parse."""

from __future__ import annotations

import pytest

from twin.registry.list_options import parse_fields, parse_labels
from twin.registry.status import ApiError

FIELDS = frozenset(("metadata.name", "spec.nodeName"))


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("a=x", {"a": "x"}, True),
        ("a==x", {"a": "y"}, False),
        ("a!=x", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a in (x, y)", {"a": "y"}, True),
        ("a notin (x,y)", {}, True),
        ("a notin (x,y)", {"a": "x"}, False),
        ("a in (,x)", {"a": ""}, True),
        ("a=", {"a": ""}, True),
        ("a>1", {"a": "2"}, True),
        ("a<1", {"a": "one"}, False),
        ("a=x,b!=y", {"a": "x", "b": "y"}, False),
        ("kubernetes.io/os in (linux)", {"kubernetes.io/os": "linux"}, True),
        ("in in (in)", {"in": "in"}, True),
    ],
)
def test_label_operators(selector: str, labels: dict[str, str], selected: bool) -> None:
    parsed = parse_labels(selector)
    assert parsed is not None
    assert parsed.matches(labels) is selected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a=x=y", "found '=', expected: ',' or 'end of string'"),
        ("a in x", "unable to parse requirement: found 'x' expected: '('"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a,", "found '', expected: identifier after ','"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a>x", "unable to parse requirement: values[0]"),
        ("a in ()", "unable to parse requirement: values: Invalid value: []"),
        ("-a=x", "unable to parse requirement: key: Invalid value"),
    ],
)
def test_bad_label_selector_is_refused_with_the_servers_words(selector: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_labels(selector)
    assert refused.value.code == 400
    assert refused.value.body["message"].startswith(message)


def test_empty_selectors_select_everything() -> None:
    assert parse_labels("") is None
    assert parse_fields("", FIELDS) is None


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("spec.nodeName=", False),
        ("spec.nodeName!=", True),
        ("spec.nodeName==n1", True),
        ("spec.nodeName=n1,metadata.name!=p", False),
        (r"spec.nodeName=n\,1", False),
    ],
)
def test_field_terms(selector: str, selected: bool) -> None:
    parsed = parse_fields(selector, FIELDS)
    assert parsed is not None
    assert parsed.matches({"spec.nodeName": "n1", "metadata.name": "p"}) is selected


def test_absent_field_counts_as_empty() -> None:
    parsed = parse_fields("spec.nodeName=", FIELDS)
    assert parsed is not None
    assert parsed.matches({})


@pytest.mark.parametrize("selector", ["spec.nodeName", "spec.nodeName>x", "status.x=1", r"spec.nodeName=\x"])
def test_bad_field_selector_is_refused(selector: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_fields(selector, FIELDS)
    assert refused.value.code == 400
