"""The state of ``conclave top`` on a terminal: keys change it, and it says what to draw. Pure.

tabs      overview | nodes | queue | pending | decisions | members       Tab, left, right, 1-9
in a list up, down, PgUp, PgDn, Home, End choose a row; Enter opens it, Esc goes back
          s sorts by the next column, r turns the order, / filters, w shows more columns
anywhere  ? help, q quit
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.cli.listing.kinds import Json, ListColumn
from services.cli.listing.wanted import rank
from services.cli.operate.top.pages import TopPage, top_lines
from services.cli.terminal.tables import cell, paint, printable

HELP = (
    "Tab, right, left   the next tab, the one before; 1 to 9: that one",
    "up, down, j, k     choose a row; PgUp, PgDn, Home, End",
    "Enter              open the row: a node and its pods, a group's pods, why a pod is where it is",
    "Esc, Backspace     back; in a filter: leave it out",
    "s, S               sort by the next column, by the one before",
    "r                  turn the order round",
    "/                  filter: show rows that hold this text; Enter keeps it",
    "w                  more columns, or fewer",
    "?                  this help",
    "q, Ctrl-C          quit",
)
MOST_TYPED = 100
MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}


class TopView:
    """What is on the screen."""

    def __init__(self, tabs: Sequence[TopPage]) -> None:
        self.tabs = list(tabs)
        self.tab = 0
        self.opened: list[TopPage] = []
        self.overview: Json = {}
        self.failure = ""
        self.typing = False
        self.help = False
        self._room = 1

    @property
    def page(self) -> TopPage:
        """The page that is looked at."""
        return self.opened[-1] if self.opened else self.tabs[self.tab]

    # --- keys ---------------------------------------------------------------------------------------------------

    def press(self, key: str) -> bool:
        """Do what the key says. False: quit."""
        if self.typing:
            self._type(key)
        elif self.help:
            self.help = False
        elif key == "q":
            return False
        elif key == "?":
            self.help = True
        elif key in ("tab", "right", "backtab", "left") or (len(key) == 1 and key in "123456789"):
            self._turn(key)
        elif key in ("escape", "backspace"):
            self._back()
        else:
            self._in_page(key)
        return True

    def _turn(self, key: str) -> None:
        if key.isdigit():
            at = int(key) - 1
            if at >= len(self.tabs):
                return
            self.tab = at
        else:
            self.tab = (self.tab + (1 if key in ("tab", "right") else -1)) % len(self.tabs)
        self.opened.clear()

    def _back(self) -> None:
        if self.page.filter:
            self.page.filter = ""
        elif self.opened:
            self.opened.pop()

    def _in_page(self, key: str) -> None:
        page = self.page
        if key in MOVES:
            self._move(MOVES[key])
        elif key in ("pageup", "pagedown"):
            self._move(self._room if key == "pagedown" else -self._room)
        elif key in ("home", "g"):
            self._move(-(10**9))
        elif key in ("end", "G"):
            self._move(10**9)
        elif page.kind is None:
            return
        elif key in ("s", "S"):
            self._sort(1 if key == "s" else -1)
        elif key == "r":
            page.reverse = not page.reverse
        elif key == "w":
            page.wide = not page.wide
        elif key == "/":
            self.typing = True
        elif key == "enter":
            items = self.items()
            opened = page.opens(items[self._row(items)]) if items else None
            if opened is not None:
                self.opened.append(opened)

    def _type(self, key: str) -> None:
        page = self.page
        if key == "enter":
            self.typing = False
        elif key == "escape":
            page.filter, self.typing = "", False
        elif key == "backspace":
            page.filter = page.filter[:-1]
        elif key == "clear":
            page.filter = ""
        elif len(key) == 1:
            page.filter = (page.filter + key)[:MOST_TYPED]

    def _move(self, by: int) -> None:
        page = self.page
        items = self.items()
        if page.kind is None or not items:
            page.scrolled = max(0, page.scrolled + by)
            return
        page.row = min(max(self._row(items) + by, 0), len(items) - 1)
        page.chosen = page.key(items[page.row])

    def _sort(self, by: int) -> None:
        page = self.page
        assert page.kind is not None
        choices: list[int | None] = [None, *range(len(page.kind.columns))]
        choices = [at for at in choices if at is None or page.wide or not page.kind.columns[at].wide]
        page.sort = choices[(choices.index(page.sort) + by) % len(choices)] if page.sort in choices else None
        # who sorts by a number looks for the greatest
        page.reverse = page.sort is not None and page.kind.columns[page.sort].right

    # --- what is shown ------------------------------------------------------------------------------------------

    def items(self) -> list[Json]:
        """The rows of the page as they are filtered and sorted."""
        page = self.page
        found = list(page.found[1]) if page.found is not None else []
        if page.kind is None:
            return found
        if page.filter:
            wanted = page.filter.casefold()
            found = [item for item in found if any(wanted in text for text in _texts(page.kind.columns, item))]
        if page.sort is not None:
            value = page.kind.columns[page.sort].value
            found.sort(key=lambda item: rank(value(item)), reverse=page.reverse)
        elif page.reverse:
            found.reverse()
        return found

    def _row(self, items: Sequence[Json]) -> int:
        """Where the chosen item is now; where it is gone, the row at its place."""
        page = self.page
        if page.chosen and not (page.row < len(items) and page.key(items[page.row]) == page.chosen):
            page.row = next((at for at, item in enumerate(items) if page.key(item) == page.chosen), page.row)
        return min(page.row, max(len(items) - 1, 0))

    def draw(self, width: int, height: int, *, colour: bool) -> list[str]:
        """At most ``height`` - 1 lines."""
        room = max(height - 1, 1)
        lines = [self._tabs(colour=colour)]
        if self.failure:
            lines.append(paint(self.failure, "red", on=colour))
        foot = self._foot(colour=colour)
        room -= len(lines) + 1
        page = self.page
        if self.help:
            body: list[str] = list(HELP)
        elif page is self.tabs[0] and not self.opened:
            seen: dict[str, Any] = dict(page.found[1][0]) if page.found is not None else {}
            body = top_lines({"overview": self.overview, **seen}, width=width, height=room + 1, colour=colour)
        elif page.found is None:
            body = ["asking ..."]
        else:
            body = self._body(width, room, colour=colour)
        body = body[: max(room, 0)]
        return [*lines, *body, *[""] * (room - len(body)), foot][: max(height - 1, 1)]

    def _body(self, width: int, room: int, *, colour: bool) -> list[str]:
        from rich.cells import set_cell_size

        page = self.page
        assert page.found is not None
        above = [printable(line) for line in page.found[0]]
        if page.kind is None:
            self._room = max(room - 1, 1)
            page.scrolled = min(page.scrolled, max(len(above) - room, 0))
            return above[page.scrolled :]
        above = above[: max(room - 3, 0)]
        items = self.items()
        header, *rows = page.kind.lines(items, wide=page.wide) or [""]
        self._room = room = max(room - len(above) - 1, 1)
        if not items:
            return [*above, "nothing holds this text" if page.filter else header or "none"]
        chosen = self._row(items)
        # at least the chosen row is on the screen, and no line is left empty
        page.scrolled = min(max(page.scrolled, chosen - room + 1), chosen, max(len(rows) - room, 0))
        window = rows[page.scrolled : page.scrolled + room]
        at = chosen - page.scrolled
        window[at] = paint(set_cell_size(window[at], width), "reverse", on=colour)
        return [*above, paint(header, "bold", on=colour), *window]

    def _tabs(self, *, colour: bool) -> str:
        parts = [
            paint(f" {at + 1} {page.title} ", "reverse", on=colour) if at == self.tab else f" {at + 1} {page.title} "
            for at, page in enumerate(self.tabs)
        ]
        way = "".join(f" > {page.title}" for page in self.opened)
        return f"conclave top {''.join(parts)}{printable(way)}"

    def _foot(self, *, colour: bool) -> str:
        page = self.page
        if self.typing:
            return f"/{printable(page.filter)}_"
        parts = [f"/{printable(page.filter)}"] if page.filter else []
        if page.kind is not None and page.found is not None:
            whole, shown = len(page.found[1]), len(self.items())
            parts.append(f"{shown} of {whole}" if shown != whole else f"{whole}")
            if page.sort is not None:
                order = "greatest first" if page.reverse else "least first"
                parts.append(f"by {page.kind.columns[page.sort].title}, {order}")
        keys = "q quit  ? help  Tab next" + ("" if page.kind is None else "  / filter  s sort  Enter open")
        return paint("  ".join([*parts, keys + ("  Esc back" if self.opened else "")]), "dim", on=colour)


def _texts(columns: Sequence[ListColumn], item: Json) -> list[str]:
    return [cell((column.text or column.value)(item)).casefold() for column in columns]
