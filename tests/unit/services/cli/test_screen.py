"""A screen redraws in place on a terminal, prints blocks elsewhere, and leaves the terminal as it was."""

from __future__ import annotations

import io

import pytest

from services.cli.terminal.screen import ENTER, LEAVE, Screen, cut, frame


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_frame_starts_at_the_top_cuts_lines_and_clears_the_rest() -> None:
    assert frame(["long line", "b", "c"], 4, 3) == "\x1b[Hlong\x1b[K\r\nb\x1b[K\r\n\x1b[J"


def test_styles_are_not_counted_and_stay_closed() -> None:
    assert cut("\x1b[31mabcdef\x1b[0m tail", 3) == "\x1b[31mabc\x1b[0m"
    assert cut("\x1b[31mabc\x1b[0m", 3) == "\x1b[31mabc\x1b[0m"


def test_the_terminal_is_left_as_it_was_also_after_an_error() -> None:
    out = Terminal()

    def interrupted() -> None:
        with Screen(out) as screen:
            screen.draw(["x"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert out.getvalue().startswith(ENTER)
    assert out.getvalue().endswith(LEAVE)


def test_elsewhere_blocks_follow_each_other_without_any_escape() -> None:
    out = io.StringIO()
    with Screen(out) as screen:
        screen.draw(["a", "b"])
        screen.draw(["c"])
    assert out.getvalue() == "a\nb\n\nc\n"


def test_a_dumb_terminal_gets_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    with Screen(out) as screen:
        screen.draw(["a"])
    assert out.getvalue() == "a\n"
