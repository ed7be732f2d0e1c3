"""HTTP/1.1 answers out of the bytes of one connection: the status, the headers that we read, the body. No I/O.

    head --Content-Length--> so many bytes --------------------> done
     ^   |--chunked--> size, bytes, size, ..., 0, trailer -----> done
     |   |--neither--> until the connection ends --------------> done
     |   |--204, 304, to CONNECT ------------------------------> done
     +---+--1xx

Strict wherever a lenient reader could take the bytes of one answer for another's: lengths that contradict each other,
an unknown coding, a folded header or bytes after the end are ``AnswerBroken``, and the connection is not used again.
It refuses to interpret: which status is which error is ``transport``'s.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_HEAD = 64 << 10
"""Bytes of a head, or of a trailer; Go's server writes less than 1 KB."""

MAX_SIZE_LINE = 1024
"""Bytes of the line that gives a chunk's size; extensions are read over."""

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n]*)?")
_OURS = re.compile(rb"\r\n((?:[Cc][Oo][Nn]|[Tt][Rr][Aa]|[Rr][Ee][Tt]|[Dd][Aa][Tt]|[ \t])[^\r\n]*)")
"""Lines of a head that may be read, folded ones among them; the others, most of them, are not looked at."""

_FIRST_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
_NEXT_SIZE = re.compile(rb"\r\n([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


class AnswerBroken(OSError):
    """What came is no answer, or not all of one. Whether the request took effect is unknown."""


class NoAnswer(AnswerBroken):
    """A connection that had served before ended without one byte of an answer: most likely it was closed while idle."""


class ResponseHead(NamedTuple):
    """What is read of an answer's head. ``length`` None: chunked, or until the connection ends."""

    status: int
    length: int | None
    chunked: bool
    keep_alive: bool
    retry_after: str | None
    date: str = ""


def head_of(text: bytes) -> ResponseHead:
    """The head in ``text``, which is without the empty line at its end. ``AnswerBroken``: it is none."""
    first = text.partition(b"\r\n")[0]
    status = _STATUS.fullmatch(first)
    if status is None:
        raise AnswerBroken(f"the answer does not begin as one of HTTP/1.1: {first[:64]!r}")
    code, keep_alive = int(status[2]), status[1] == b"1"
    length: int | None = None
    chunked, retry_after, date = False, None, ""
    for line in _OURS.findall(text):
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise AnswerBroken(f"a header of the answer cannot be read: {line[:64]!r}")
        name, value = name.lower(), value.strip()
        if name == b"content-length":
            if not value.isdigit() or len(value) > 15 or length not in (None, int(value)):
                raise AnswerBroken(f"Content-Length cannot be read: {value[:64]!r}")
            length = int(value)
        elif name == b"transfer-encoding":
            if chunked or value.lower() != b"chunked":
                raise AnswerBroken(f"Transfer-Encoding is not chunked alone: {value[:64]!r}")
            chunked = True
        elif name == b"connection":
            wanted = value.lower()
            keep_alive = b"close" not in wanted and (keep_alive or b"keep-alive" in wanted)
        elif name == b"retry-after":
            retry_after = value.decode("latin-1")
        elif name == b"date":
            date = value.decode("latin-1")
    if chunked and length is not None:
        raise AnswerBroken("the answer has both a Content-Length and chunks")
    if code in (204, 304):
        length, chunked = 0, False
    return ResponseHead(code, length, chunked, keep_alive and (chunked or length is not None), retry_after, date)


class AnswerReader:
    """One answer after the other. ``begin``, then ``feed`` until ``done``."""

    __slots__ = ("_bodiless", "_ending", "_held", "_left", "_size", "done", "head")

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        """None until it is complete."""
        self.done = True
        self._bodiless = False
        self._held = b""
        """The beginning of a head, a size or a trailer whose end has not come."""
        self._left = 0
        """Bytes to come of the body or of the chunk."""
        self._size = _FIRST_SIZE
        self._ending = False

    def begin(self, *, bodiless: bool = False) -> None:
        """The next answer. ``bodiless``: it answers a CONNECT, where a 2xx has no body whatever its headers say."""
        self.head, self.done, self._bodiless = None, False, bodiless
        self._held, self._left, self._size, self._ending = b"", 0, _FIRST_SIZE, False

    def feed(self, data: bytes, body: list[bytes]) -> None:
        """What ``data`` holds of the body is appended to ``body``. ``AnswerBroken``: nothing more can be read."""
        if self.done:
            raise AnswerBroken("bytes came that answer nothing")
        if self._held:
            data, self._held = self._held + data, b""
        head, at = self.head, 0
        if head is None:
            at = self._read_head(data)
            head = self.head
            if head is None:
                return
        if head.chunked:
            at = self._read_chunks(data, at, body)
        elif head.length is None:
            if not self.done and at < len(data):
                body.append(data[at:])
                at = len(data)
        else:
            end = min(len(data), at + self._left)
            if at < end:
                body.append(data[at:end])
                self._left -= end - at
                at = end
            self.done = not self._left
        if self.done and at < len(data):
            raise AnswerBroken("bytes came after the end of the answer")

    def end(self) -> None:
        """The connection ended. ``AnswerBroken``: before the answer did."""
        head = self.head
        if head is not None and not head.chunked and head.length is None:
            self.done = True
        if not self.done:
            raise AnswerBroken("the connection ended before the answer did")

    def _read_head(self, data: bytes) -> int:
        at = 0
        while True:
            end = data.find(b"\r\n\r\n", at)
            if (end if end >= 0 else len(data)) - at > MAX_HEAD:
                raise AnswerBroken(f"the head of the answer is over {MAX_HEAD} bytes")
            if end < 0:
                self._held = data[at:]
                return len(data)
            head, at = head_of(data[at:end]), end + 4
            if head.status == 101:
                raise AnswerBroken("the server changes the protocol unasked")
            if head.status >= 200:
                if self._bodiless and head.status < 300:
                    head = head._replace(length=0, chunked=False, keep_alive=True)
                self.head, self._left = head, head.length or 0
                self.done = head.length == 0
                return at

    def _read_chunks(self, data: bytes, at: int, body: list[bytes]) -> int:
        size = len(data)
        while not self._ending:
            if self._left:
                end = min(size, at + self._left)
                if at < end:
                    body.append(data[at:end])
                    self._left -= end - at
                    at = end
                if self._left:
                    return at
            found = self._size.match(data, at)
            if found is None:
                begins = at if self._size is _FIRST_SIZE else at + 2
                if size - at > MAX_SIZE_LINE or data.find(b"\n", begins) >= 0:
                    raise AnswerBroken(f"a chunk has no size: {data[at : at + 64]!r}")
                self._held = data[at:]
                return size
            self._left, at, self._size = int(found[1], 16), found.end(), _NEXT_SIZE
            self._ending = not self._left
        return self._read_trailer(data, at)

    def _read_trailer(self, data: bytes, at: int) -> int:
        """Lines up to an empty one; what they say is not read."""
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > MAX_HEAD:
                    raise AnswerBroken(f"the trailer of the answer is over {MAX_HEAD} bytes")
                self._held = data[at:]
                return len(data)
            if end == at:
                self.done = True
                return at + 2
            at = end + 2
