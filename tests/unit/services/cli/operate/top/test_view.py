"""``conclave top`` on a terminal: keys choose, sort, filter and open; whatever its size, the screen is not overrun."""

from __future__ import annotations

from typing import Any

import pytest

from services.cli.operate.top.pages import TopPage, tabs
from services.cli.operate.top.view import TopView
from services.cli.terminal.keyboard import KeyParser

NODES = [
    {
        "name": f"n{number}", "agent": "a", "schedulable": True, "pods": number, "uid": "",
        "allocatable": {"cpu_millis": 1000, "memory_bytes": 1000}, "requested": {"cpu_millis": cpu, "memory_bytes": 1},
    }
    for number, cpu in ((1, 500), (2, 100), (10, 900))
]  # fmt: skip
QUEUE = [{"namespace": ns, "name": name, "uid": name, "plugins": []} for ns, name in (("a", "p"), ("b", "q"))]
GROUP = {"reason": "NodeResourcesFit", "namespace": "a", "priority": 0, "class": "c", "pods": 2, "helps": []}


@pytest.fixture
def view() -> TopView:
    made = TopView(tabs())
    made.overview = {"time": "now", "leader": {"id": "c-0", "term": 3}}
    found: list[Any] = [[{"nodes": {}, "decisions": []}], NODES, QUEUE, [GROUP], [], []]
    for page, items in zip(made.tabs, found, strict=True):
        page.found = ((), items)
    return made


def press(view: TopView, *keys: str) -> TopPage:
    for key in keys:
        assert view.press(key)
    view.draw(100, 30, colour=False)
    return view.page


def names(view: TopView) -> list[str]:
    return [str(item["name"]) for item in view.items()]


def test_tabs_go_round_and_are_chosen_by_number(view: TopView) -> None:
    assert press(view).title == "overview"
    assert press(view, "tab").title == "nodes"
    assert press(view, "left", "left").title == "members"
    assert press(view, "right").title == "overview"
    assert press(view, "3").title == "queue"
    assert press(view, "9").title == "queue"


def test_q_quits_but_not_while_a_filter_is_typed(view: TopView) -> None:
    press(view, "2", "/", "q")
    assert view.page.filter == "q"
    press(view, "enter")
    assert not view.press("q")


def test_a_row_opens_and_escape_goes_back(view: TopView) -> None:
    press(view, "2", "down", "enter")
    assert view.page.title == "node n2"
    view.page.found = (["n2: Ready"], QUEUE)
    assert press(view, "down", "enter").title == "pod b/q"
    assert "> node n2 > pod b/q" in view.draw(100, 30, colour=False)[0]
    assert press(view, "escape").title == "node n2"
    assert press(view, "backspace").title == "nodes"
    assert press(view, "escape").title == "nodes"
    assert press(view, "4", "enter").title == "group NodeResourcesFit"
    assert press(view, "tab").title == "decisions"
    assert press(view, "enter").title == "decisions"


def test_numbers_are_sorted_with_the_greatest_first_and_text_from_its_beginning(view: TopView) -> None:
    press(view, "2", "s")
    assert names(view) == ["n1", "n2", "n10"]
    press(view, "r")
    assert names(view) == ["n10", "n2", "n1"]
    press(view, "s", "s", "s", "s")
    assert "by CPU, greatest first" in view.draw(120, 30, colour=False)[-1]
    assert names(view) == ["n10", "n1", "n2"]
    press(view, "S", "S", "S", "S", "S")
    assert names(view) == ["n1", "n2", "n10"]


def test_a_filter_keeps_rows_that_hold_it_and_escape_leaves_it_out(view: TopView) -> None:
    press(view, "2", "/", "N", "1")
    assert names(view) == ["n1", "n10"]
    press(view, "0", "x", "backspace", "enter")
    assert names(view) == ["n10"]
    assert "1 of 3" in view.draw(100, 30, colour=False)[-1]
    press(view, "escape")
    assert names(view) == ["n1", "n2", "n10"]
    press(view, "/", "z")
    assert any("nothing holds this text" in line for line in view.draw(100, 30, colour=False))
    assert press(view, "enter", "enter").title == "nodes"


def test_the_chosen_row_is_kept_while_the_list_changes(view: TopView) -> None:
    press(view, "2", "down", "down")
    view.page.found = ((), [NODES[2], {**NODES[0], "name": "new"}, *NODES[:2]])
    assert press(view, "enter").title == "node n10"
    press(view, "escape")
    view.page.found = ((), NODES[:1])
    assert press(view, "enter").title == "node n1"
    view.opened.clear()
    view.page.found = ((), [])
    assert press(view, "enter", "down", "end").title == "nodes"


@pytest.mark.parametrize("width", [1, 20, 100])
@pytest.mark.parametrize("height", [1, 2, 3, 5, 8, 24])
def test_the_screen_is_not_overrun_and_the_chosen_row_is_on_it(view: TopView, width: int, height: int) -> None:
    view.tabs[1].found = ((), [{**NODES[0], "name": f"node-{number}"} for number in range(100)])
    for keys in (("1",), ("2",), ("end",), ("home",), ("pagedown",), ("?",), ("x", "3"), ("2", "end")):
        press(view, *keys)
        lines = view.draw(width, height, colour=False)
        assert len(lines) <= max(height - 1, 1)
    if height >= 5 and width >= 20:
        assert any("node-99" in line for line in lines)
    view.failure = "nobody leads"
    assert len(view.draw(width, height, colour=True)) <= max(height - 1, 1)


def test_a_failure_stands_above_what_was_known(view: TopView) -> None:
    press(view, "2")
    view.failure = "nobody leads"
    lines = view.draw(100, 30, colour=False)
    assert lines[1] == "nobody leads"
    assert any(line.startswith("n10 ") for line in lines)


def test_a_name_cannot_write_to_the_terminal(view: TopView) -> None:
    view.tabs[1].found = (("\x1b[31mred",), [{**NODES[0], "name": "\x1b]0;title\x07"}])
    press(view, "2", "enter")
    assert not any("\x1b" in line for line in view.draw(100, 30, colour=False))


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B\x1bOC\x1b[5~", ["up", "down", "right", "pageup"]),
        (b"\r\t\x7f", ["enter", "tab", "backspace"]),
        ("äß".encode(), ["ä", "ß"]),
        (b"\x1b[1;5C\x1b[200~x", ["x"]),
        (b"\x1bx", ["escape", "x"]),
        (b"\x01\xff", []),
    ],
)
def test_bytes_of_a_terminal_are_keys(data: bytes, keys: list[str]) -> None:
    assert [key for key in KeyParser().feed(data) if key != "\ufffd"] == keys
    parser = KeyParser()
    one_by_one = [key for byte in data for key in parser.feed(bytes([byte]))]
    assert [key for key in one_by_one if key != "\ufffd"] == keys


def test_an_escape_is_a_key_when_nothing_follows() -> None:
    parser = KeyParser()
    assert parser.feed(b"\x1b") == []
    assert parser.holds
    assert parser.flush() == ["escape"]
    assert not parser.holds
    assert parser.feed(b"\x1b[" + b"1" * 50 + b"q")[-1] == "q"
