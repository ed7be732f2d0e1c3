"""The query of lists and watches: what parses, what is refused, continue tokens."""

from __future__ import annotations

import pytest

from twin.registry.list_options import (
    decode_continue,
    encode_continue,
    parse_list_options,
    query_bool,
)
from twin.registry.status import ApiError


@pytest.mark.parametrize(
    ("value", "expected"), [(None, False), ("", True), ("0", False), ("False", False), ("maybe", True)]
)
def test_query_booleans_follow_go(value: str | None, expected: bool) -> None:
    assert query_bool(value) is expected


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"limit": "x"}, 400),
        ({"timeoutSeconds": "1.5"}, 400),
        ({"resourceVersion": "abc"}, 400),
        ({"resourceVersion": "-1"}, 400),
        ({"resourceVersion": "99999999999999999999"}, 400),
        ({"resourceVersion": "abc", "watch": "1"}, 500),
        ({"resourceVersion": "5", "continue": "x"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "5", "resourceVersionMatch": "Newest"}, 422),
        ({"sendInitialEvents": "true"}, 422),
        ({"sendInitialEvents": "true", "watch": "true"}, 422),
        ({"resourceVersionMatch": "NotOlderThan", "watch": "true"}, 422),
    ],
)
def test_refused_queries(query: dict[str, str], code: int) -> None:
    with pytest.raises(ApiError) as refused:
        parse_list_options(query)
    assert refused.value.code == code


def test_negative_limit_means_none() -> None:
    assert parse_list_options({"limit": "-1"}).limit == 0


def test_continue_token_comes_back_as_it_went() -> None:
    token = decode_continue(encode_continue(1234, "default/p\0"))
    assert (token.revision, token.start) == (1234, "default/p\0")


@pytest.mark.parametrize("text", ["nonsense", "e30", "eyJ2IjoieCJ9", "%%%"])
def test_bad_continue_tokens_are_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        decode_continue(text)
    assert refused.value.code == 400
