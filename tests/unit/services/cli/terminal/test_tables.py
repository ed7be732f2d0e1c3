"""Tables line up, quantities read as people write them, and nothing from elsewhere acts on the terminal."""

from __future__ import annotations

import io

import pytest

from services.cli.terminal.tables import age, coloured, cpu, number, paint, share, size, table


def test_columns_line_up_and_numbers_stand_to_the_right() -> None:
    assert table([("NAME", False), ("PODS", True), ("WHY", False)], [["a", 7, "x"], ["longer", 1200, None]]) == [
        "NAME    PODS  WHY",
        "a          7  x",
        "longer  1200  -",
    ]


def test_control_characters_never_reach_the_terminal() -> None:
    assert table([("NAME", False)], [["a\x1b[31mb\nc\x00"]]) == ["NAME", "a?[31mb?c?"]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (cpu(None), "-"), (cpu(0), "0"), (cpu(250), "0.25"), (cpu(1500), "1.5"), (cpu(64_000), "64"),
        (size(None), "-"), (size(0), "0"), (size(1023), "1023"), (size(512 << 20), "512Mi"),
        (size(int(3.5 * 2**30)), "3.5Gi"), (size(2 << 30), "2Gi"), (size(5 << 40), "5Ti"),
        (size(58.4171 * 2**30), "58.42Gi"),
        (share(1, 3), "33%"), (share(1, 0), "-"), (share(None, 4), "-"),
        (age(None), "-"), (age(-1), "0.0s"), (age(0.44), "0.4s"), (age(119), "119s"), (age(300), "5m"),
        (age(3 * 3600), "3h"), (age(86_400 * 4), "4d"),
        (number(0.0), "0"), (number(0.254), "0.25"), (number(3.14), "3.1"), (number(1234.6), "1235"),
    ],
)  # fmt: skip
def test_quantities_read_as_people_write_them(found: str, text: str) -> None:
    assert found == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_and_not_against_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert coloured(Terminal())
    assert not coloured(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not coloured(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not coloured(Terminal())


def test_paint_is_off_unless_asked() -> None:
    assert paint("x", "red", on=False) == "x"
    assert paint("x", "red", on=True) == "\x1b[31mx\x1b[0m"
