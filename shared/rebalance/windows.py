"""Windows of time in which pods may be moved: days of the week and hours, in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Struct

from shared.errors import ConfigError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
A_DAY = 24 * 60
A_WEEK_S = 7 * 86_400.0
EXAMPLE = "give DAYS HH:MM-HH:MM in UTC, several separated by commas, as 'Mon-Fri 22:00-06:00, Sun 00:00-24:00'"


class MoveWindow(Struct, frozen=True):
    """``days``: on which it opens, 0 is Monday; ``begins``, ``ends``: minutes of that day, the end beyond 1440 where it
    goes past midnight."""

    days: frozenset[int]
    begins: int
    ends: int

    def left_s(self, at: datetime) -> float:
        """Seconds until it closes, of the one that is open then; 0.0: none is."""
        midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
        for back in (0, 1):  # one that opened yesterday may be open yet
            day = midnight - timedelta(days=back)
            minutes = (at - day).total_seconds() / 60
            if day.weekday() in self.days and self.begins <= minutes < self.ends:
                return (self.ends - minutes) * 60
        return 0.0


def parse_windows(text: str) -> tuple[MoveWindow, ...]:
    """The windows; () for an empty text: always. ``ConfigError``: a part cannot be read."""
    return tuple(_window(part.strip()) for part in text.split(",")) if text.strip() else ()


def open_for_s(windows: tuple[MoveWindow, ...], wall_s: float) -> float:
    """Seconds until no window is open, windows that follow on each other being one; 0.0: none is; a week or more:
    always; inf where there are no windows. ``wall_s``: since 1970."""
    if not windows:
        return float("inf")
    at, found = datetime.fromtimestamp(wall_s, UTC), 0.0
    while found < A_WEEK_S and (more := max(one.left_s(at + timedelta(seconds=found)) for one in windows)):
        found += more
    return found


def _window(part: str) -> MoveWindow:
    days, _, hours = part.rpartition(" ")
    first, dash, last = hours.partition("-")
    begins, ends = _minutes(first, part), _minutes(last, part)
    if not dash or begins >= A_DAY or begins == ends:
        raise ConfigError(f"windows: {part!r} is no window; {EXAMPLE}")
    return MoveWindow(_days(days.strip(), part), begins, ends if ends > begins else ends + A_DAY)


def _minutes(text: str, part: str) -> int:
    hours, colon, minutes = text.partition(":")
    if not (colon and len(hours) == len(minutes) == 2 and hours.isdecimal() and minutes.isdecimal()):
        raise ConfigError(f"windows: {part!r}: {text!r} is no time of day; {EXAMPLE}")
    found = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or found > A_DAY:
        raise ConfigError(f"windows: {part!r}: {text!r} is no time of day; {EXAMPLE}")
    return found


def _days(text: str, part: str) -> frozenset[int]:
    if not text:
        return frozenset(range(7))
    first, dash, last = text.partition("-")
    if first not in DAYS or (dash and last not in DAYS):
        raise ConfigError(f"windows: {part!r}: {text!r} is not one of {', '.join(DAYS)}, nor two with '-'; {EXAMPLE}")
    begins, ends = DAYS.index(first), DAYS.index(last if dash else first)
    return frozenset(day % 7 for day in range(begins, (ends if ends >= begins else ends + 7) + 1))
