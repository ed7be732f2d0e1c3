"""A screen redraws in place on a terminal, prints blocks elsewhere, and leaves the terminal as it was."""

from __future__ import annotations

import io

import pytest

from services.cli.terminal.screen import Screen

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_frame_starts_at_the_top_cuts_lines_by_what_they_take_on_the_screen_and_keeps_styles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "4")
    monkeypatch.setenv("LINES", "3")
    out = Terminal()
    with Screen(out) as screen:
        begun = len(out.getvalue())
        screen.draw(["\x1b[31mlong\x1b[0m line", "日本語", "c", "too much"])
        frame = out.getvalue()[begun:]
    assert frame == "\x1b[H\x1b[31mlong\x1b[0m\n日本\nc   "


def test_the_terminal_is_left_as_it_was_also_after_an_error() -> None:
    out = Terminal()

    def interrupted() -> None:
        with Screen(out) as screen:
            screen.draw(["x"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert out.getvalue().startswith(ENTER)
    assert HIDE in out.getvalue()
    assert out.getvalue().endswith(SHOW + LEAVE)


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
