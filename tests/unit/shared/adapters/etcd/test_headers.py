"""Header blocks by the examples of RFC 7541 (appendix C), and what cannot be read."""

from __future__ import annotations

import pytest

from shared.adapters.etcd import headers
from shared.adapters.etcd.headers import HeadersBroken, headers_of, literal


def coded(name: str, value: str) -> bytes:
    """A literal header with both texts coded, given in hex."""
    texts = [bytes.fromhex(text) for text in (name, value)]
    return b"\0" + b"".join(bytes((0x80 + len(text),)) + text for text in texts)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("f1e3c2e5f23a6ba0ab90f4ff", "www.example.com"),
        ("a8eb10649cbf", "no-cache"),
        ("25a849e95ba97d7f", "custom-key"),
        ("25a849e95bb8e8b4bf", "custom-value"),
        ("d07abe941054d444a8200595040b8166e082a62d1bff", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("9d29ad171863c78f0b97c8e9ae82ae43d3", "https://www.example.com"),
    ],
)
def test_coded_text_is_read(text: str, plain: str) -> None:
    assert headers_of(coded("25a849e95ba97d7f", text)) == {"custom-key": plain}


def test_every_byte_has_a_code_and_no_code_begins_another() -> None:
    assert len(headers._codes()) == 256
    rest = 1 - sum(2.0**-length for row in headers._LENGTHS for length in row)
    assert rest == 2.0**-headers._LONGEST, "what is left is the one code of the end"


def test_a_status_of_the_static_table_and_literals_of_each_kind_are_read() -> None:
    block = b"\x20\x88\x5f\x10application/grpc" + literal("grpc-status", "0") + b"\x40\x01a\x01b" + b"\x08\x03404"
    assert headers_of(block) == {":status": "404", "grpc-status": "0", "a": "b"}


def test_a_long_value_is_written_and_read() -> None:
    assert headers_of(literal("a", "x" * 5000)) == {"a": "x" * 5000}


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"\xbe", id="an entry of the dynamic table"),
        pytest.param(b"\x80", id="entry 0"),
        pytest.param(b"\x00\x05ab", id="a name that ends too soon"),
        pytest.param(b"\x00\x01a", id="no value"),
        pytest.param(b"\x00\x01a\x7f\xff\xff\xff\xff\xff\xff\x01", id="a length beyond all bounds"),
        pytest.param(b"\x00\x01a\x84\xff\xff\xff\xff", id="the code of the end"),
        pytest.param(b"\x00\x01a\x81\x00", id="half a code"),
    ],
)
def test_what_cannot_be_read_is_broken(block: bytes) -> None:
    with pytest.raises(HeadersBroken):
        headers_of(block)
