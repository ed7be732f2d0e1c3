"""A plan as a picture (SVG): nodes that pods leave on the left, those they come to on the right, a column of arrows per
batch."""

from __future__ import annotations

from html import escape

from shared.rebalance.plan import Move, MovePlan

ROW, WIDTH, COLUMN, TOP, NAME = 16, 190, 260, 56, 28
INK, FAINT = "#1f2933", "#9aa5b1"
HUES = ("#0b6e99", "#b4540a", "#2f7d32", "#7b3fa0", "#a3243b", "#5a6b00")
MOST = 400
"""Moves drawn; a picture of more shows nothing."""


def picture(plan: MovePlan) -> str:
    """The whole picture; the same plan gives the same text."""
    batches, left = list[tuple[Move, ...]](), MOST
    for batch in plan.batches:
        batches.append(batch[:left])
        left -= len(batches[-1])
    tall = max((sum(1 for _ in batch) + 2 * len({m.source for m in batch}) for batch in batches), default=1)
    width, height = max(1, len(batches)) * (2 * WIDTH + COLUMN), TOP + tall * ROW + 40
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">'
    )
    title = (
        f"{escape(plan.goal)}: {escape(plan.unit)} {plan.before:.4g} \u2192 {plan.after:.4g}, "
        f"{len(plan.moves)} moves in {len(plan.batches)} batches"
    )
    parts = [
        head,
        f'<title>conclave rebalance: {escape(plan.goal)}</title><rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="8" y="18" font-size="14" fill="{INK}">{title}</text>',
    ]
    for number, batch in enumerate(batches):
        parts += _batch(number, batch)
    if not plan.moves:
        parts.append(f'<text x="8" y="44" fill="{INK}">no moves: {escape(plan.stopped)}</text>')
    if len(plan.moves) > MOST:
        parts.append(f'<text x="8" y="{height - 8}" fill="{INK}">the first {MOST} moves of {len(plan.moves)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _batch(number: int, batch: tuple[Move, ...]) -> list[str]:
    x = number * (2 * WIDTH + COLUMN)
    found = [f'<text x="{x + 8}" y="40" fill="{FAINT}">batch {number + 1}</text>']
    y = TOP
    for source in sorted({move.source for move in batch}):
        found.append(f'<text x="{x + 8}" y="{y}" fill="{INK}" font-weight="bold">{_short(source)}</text>')
        y += ROW
        for move in (move for move in batch if move.source == source):
            hue = HUES[hash_of(move.target) % len(HUES)]
            tip = f"{move.key}: {move.source} to {move.target}, wins {move.gain:.4g}; {move.why}"
            found.append(
                f'<g><title>{escape(tip)}</title><text x="{x + 16}" y="{y}" fill="{INK}">{_short(move.key)}</text>'
                f'<path d="M{x + WIDTH + 30} {y - 4} h{COLUMN - 70} m-6 -4 l6 4 l-6 4" stroke="{hue}" fill="none"/>'
                f'<text x="{x + WIDTH + COLUMN - 30}" y="{y}" fill="{hue}">{_short(move.target)}</text></g>'
            )
            y += ROW
    return found


def hash_of(name: str) -> int:
    """The same for a name in every process."""
    return sum(ord(letter) * (place + 1) for place, letter in enumerate(name))


def _short(name: str) -> str:
    return escape(name if len(name) <= NAME else f"{name[: NAME - 1]}…")
