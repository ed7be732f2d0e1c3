"""Tables and numbers of a report, as HTML text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite


def number(value: float) -> str:
    """A number as people write it in a table: at most four digits behind the point."""
    if not isfinite(value):
        return "none"
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.2e}"
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> str:
    """A table of cells that are HTML already; the columns ``numbers`` are set to the right."""
    right = set(numbers)

    def row(cells: Sequence[str], tag: str) -> str:
        opened = [f'<{tag} class="n">' if at in right else f"<{tag}>" for at in range(len(cells))]
        return f"<tr>{''.join(f'{start}{cell}</{tag}>' for start, cell in zip(opened, cells, strict=True))}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<table><thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table>"
