"""Watch lines, list pages and Status bodies into structs."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import KubeError, KubeExpired
from shared.kube.decoding import FrameDecoder, LineSplitter, StreamBroken, decode_page, status_of
from shared.kube.resources import NAMESPACES, PODS, Bookmark, DeletedObject, Malformed, Upserted
from tests.builders import make_pod


def line(kind: str, body: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body})


@pytest.mark.parametrize(("kind", "type_"), [("ADDED", Upserted), ("MODIFIED", Upserted), ("DELETED", DeletedObject)])
def test_a_change_carries_the_typed_object(kind: str, type_: type):
    event = FrameDecoder(PODS)(line(kind, make_pod("a").json))
    assert isinstance(event, type_)
    assert event.object.metadata.name == "a"


def test_a_bookmark_is_a_position():
    assert FrameDecoder(PODS)(line("BOOKMARK", {"metadata": {"resourceVersion": "8"}})) == Bookmark("8")


@pytest.mark.parametrize("resource", [PODS, NAMESPACES], ids=["typed", "metadata-only"])
def test_an_error_of_410_means_list_again_whatever_the_kind_decodes_to(resource):
    status = {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410, "message": "too old"}
    with pytest.raises(KubeExpired, match="too old"):
        FrameDecoder(resource)(line("ERROR", status))


@pytest.mark.parametrize("code", [429, 500, 504])
def test_any_other_error_breaks_the_stream(code: int):
    with pytest.raises(StreamBroken):
        FrameDecoder(PODS)(line("ERROR", {"kind": "Status", "status": "Failure", "code": code}))


def test_an_event_of_unknown_type_breaks_the_stream():
    with pytest.raises(StreamBroken, match="unknown type"):
        FrameDecoder(PODS)(line("RENAMED", make_pod("a").json))


@pytest.mark.parametrize(
    "body", [{"metadata": 3}, 7, None, [], {"metadata": {"name": 5, "uid": "u"}}, {"spec": {"containers": 1}}]
)
def test_whatever_an_object_is_it_costs_only_itself(body: object):
    event = FrameDecoder(PODS)(line("MODIFIED", body))
    assert isinstance(event, Malformed)
    assert event.object.error


def test_a_deep_object_is_refused_not_followed():
    deep = b'{"type":"ADDED","object":' + b'{"spec":' * 100_000 + b"1" + b"}" * 100_000 + b"}"
    with pytest.raises(StreamBroken):
        FrameDecoder(PODS)(deep)


@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise_anything_but_a_kube_error(text: bytes):
    try:
        FrameDecoder(PODS)(text)
        decode_page(PODS, text)
    except KubeError:
        pass
    status_of(text)


@given(lines=st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b)), cuts=st.lists(st.integers(0, 400)))
def test_lines_do_not_depend_on_where_the_chunks_fall(lines: list[bytes], cuts: list[int]):
    text = b"".join(item + b"\n" for item in lines)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    splitter, found = LineSplitter(), []
    for start, end in itertools.pairwise(edges):
        found += splitter.feed(text[start:end])
    assert found == [item for item in lines if item and not item.isspace()]


def test_a_line_in_many_chunks_is_copied_a_bounded_number_of_times():
    """Quadratic copying of a 32 MB line in 1 KB chunks would take 30 s; linear takes well under one."""
    splitter, chunk = LineSplitter(64 << 20), b"x" * 1024
    for _ in range(32_768):
        assert splitter.feed(chunk) == []
    (whole,) = splitter.feed(b"\n")
    assert len(whole) == 32 << 20
