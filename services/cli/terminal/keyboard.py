"""Keys from a terminal, one at a time and unechoed, while the event loop runs. The terminal is left as it was.

Ctrl-C stays what it is: a signal. Where standard input is no terminal there are no keys.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
import termios
import tty
from types import TracebackType
from typing import Any, Self

ALONE_S = 0.05
"""How long an escape may be the beginning of something: over a slow line the rest of a key comes a little later."""
MOST_WAITING = 1000
"""Keys that nobody has taken; a pasted book is not typed."""

SEQUENCES = {
    "[A": "up", "[B": "down", "[C": "right", "[D": "left", "OA": "up", "OB": "down", "OC": "right", "OD": "left",
    "[5~": "pageup", "[6~": "pagedown", "[H": "home", "[F": "end", "OH": "home", "OF": "end", "[1~": "home",
    "[4~": "end", "[7~": "home", "[8~": "end", "[3~": "delete", "[Z": "backtab",
}  # fmt: skip
CONTROL = {"\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace", "\x15": "clear"}
LONGEST = 16


class KeyParser:
    """Bytes of a terminal to names of keys; a printable character is its own name. Pure."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    @property
    def holds(self) -> bool:
        """Whether an escape waits for what may follow it."""
        return bool(self._held)

    def feed(self, data: bytes) -> list[str]:
        """The keys that are whole."""
        self._held += self._decoder.decode(data)
        keys: list[str] = []
        while self._held:
            if self._held[0] != "\x1b":
                char, self._held = self._held[0], self._held[1:]
                keys += [CONTROL.get(char, char)] if char in CONTROL or char.isprintable() else []
                continue
            if not self._sequence(keys):
                break
        return keys

    def flush(self) -> list[str]:
        """Nothing followed: an escape was the key itself."""
        held, self._held = self._held, ""
        return ["escape"] if held else []

    def _sequence(self, keys: list[str]) -> bool:
        """Take one escape sequence; False: it is not whole yet."""
        rest = self._held[1:]
        if not rest:
            return False
        if rest[0] not in "[O":
            keys.append("escape")
            self._held = rest
            return True
        for length in range(2, min(len(rest), LONGEST) + 1):
            if rest[length - 1].isalpha() or rest[length - 1] == "~":
                keys += [SEQUENCES[rest[:length]]] if rest[:length] in SEQUENCES else []
                self._held = rest[length:]
                return True
        if len(rest) < LONGEST:
            return False
        self._held = rest[LONGEST:]  # no terminal's
        return True


class Keyboard:
    """``with Keyboard() as keys: key = await keys.next()``, inside a running loop."""

    def __init__(self) -> None:
        self._keys: asyncio.Queue[str] = asyncio.Queue(MOST_WAITING)
        self._parser = KeyParser()
        self._before: list[Any] | None = None
        self._alone: asyncio.TimerHandle | None = None

    async def next(self) -> str:
        """The next key; for ever where there is no keyboard, or it is gone."""
        return await self._keys.get()

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._alone is not None:
            self._alone.cancel()
        if self._before is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1024)
        except OSError:
            data = b""
        loop = asyncio.get_running_loop()
        if not data:
            loop.remove_reader(self._fd)
            return
        if self._alone is not None:
            self._alone.cancel()
        self._put(self._parser.feed(data))
        if self._parser.holds:
            self._alone = loop.call_later(ALONE_S, lambda: self._put(self._parser.flush()))

    def _put(self, keys: list[str]) -> None:
        for key in keys[: MOST_WAITING - self._keys.qsize()]:
            self._keys.put_nowait(key)
