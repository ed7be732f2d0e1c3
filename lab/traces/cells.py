"""Reading openb's CSV files cell by cell, so that every reader of the trace understands them alike.

What a cell may hold and what it means is decided here once: the twin's objects (``openb``) and the arrays of the
placement experiment (``gpu_trace``) are made from it. Nothing is guessed: a cell that cannot be read is a
``ConfigError`` that names file, line, column and remedy.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.errors import ConfigError

MILLI_PER_DEVICE = 1000
MAX_DEVICES = 64

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
POD_EXTRA_COLUMNS = ("gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell and where it stands."""

    file: str
    line: int
    column: str
    text: str

    def bad(self, remedy: str) -> ConfigError:
        """The error that names this cell."""
        return ConfigError(f"{self.file}, line {self.line}, column {self.column}: {self.text[:64]!r}: {remedy}")

    def number(self, highest: int = 2**53) -> int:
        """A whole number from 0 to ``highest``."""
        text = self.text.strip()
        if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > highest:
            raise self.bad(f"give a whole number from 0 to {highest}")
        return int(text)

    def name(self) -> str:
        """An object's name."""
        text = self.text.strip()
        plain = text.replace("-", "a").replace(".", "a")
        if not (plain.isascii() and plain.isalnum() and text == text.lower() and len(text) <= 253) or (
            text[0] in "-." or text[-1] in "-."
        ):
            raise self.bad("give a lower-case name of letters, digits, '-' and '.'")
        return text

    def mark(self) -> str:
        """A name that need not be an object's: what stands in one CSV cell without quotes."""
        text = self.text.strip()
        if not text or len(text) > 253 or not text.isprintable() or any(letter in ',;" ' for letter in text):
            raise self.bad("give a name without spaces, commas, semicolons and quotes")
        return text

    def label(self) -> str:
        """A label value: a GPU model."""
        text = self.text.strip()
        plain = text.replace("-", "a").replace(".", "a").replace("_", "a")
        if not (plain.isascii() and plain.isalnum() and len(text) <= 63 and text[0].isalnum() and text[-1].isalnum()):
            raise self.bad("give a model of letters and digits such as V100M16")
        return text


def rows(text: str, file: str, needed: Sequence[str], known: Sequence[str] = ()) -> Iterator[dict[str, Cell]]:
    """Each row as cells by column, in whatever order the header names them.

    ``needed`` columns must be there, ``known`` ones may be; others are read over. ``ConfigError``: a column is missing
    or there twice, or has almost the name of a ``known`` one that is missing: read over, it would be lost silently.
    """
    reader = csv.reader(text.removeprefix("\ufeff").splitlines(), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, file, needed, known)
        for row in reader:
            if not row:
                continue
            line = reader.line_num
            if len(row) != len(header):
                column = header[len(row)] if len(row) < len(header) else str(len(header) + 1)
                raise ConfigError(
                    f"{file}, line {line}, column {column}: {len(row)} cells where the header names {len(header)}; "
                    "the line is cut or has a comma too many"
                )
            yield {name: Cell(file, line, name, cell) for name, cell in zip(header, row, strict=True)}
    except csv.Error as error:
        raise ConfigError(f"{file}, line {reader.line_num}, column 1: {error}; correct the quoting") from None


def _check_header(header: Sequence[str], file: str, needed: Sequence[str], known: Sequence[str]) -> None:
    missing = [name for name in (*needed, *known) if name not in header]
    for number, name in enumerate(needed, 1):
        if name in missing:
            others = f" and may name {','.join(known)}" if known else ""
            raise ConfigError(
                f"{file}, line 1, column {number} ({name}): the header has no such column; "
                f"it must name {','.join(needed)}{others}"
            )
    plain = {_letters(name): name for name in missing}
    for number, name in enumerate(header, 1):
        if header.index(name) + 1 < number and name in (*needed, *known):
            raise ConfigError(f"{file}, line 1, column {number} ({name}): it is there twice; leave one out")
        if _letters(name) in plain:
            raise ConfigError(
                f"{file}, line 1, column {number}: {name[:64]!r} is not read; write {plain[_letters(name)]}"
            )


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def unique(name: str, cell: Cell, seen: dict[str, int]) -> str:
    """``name``, noted in ``seen`` with the line of ``cell``. ``ConfigError``: seen before."""
    if name in seen:
        raise cell.bad(f"the same name is on line {seen[name]}; names must differ")
    seen[name] = cell.line
    return name


def gpu_request(row: Mapping[str, Cell]) -> tuple[int, int]:
    """Devices and thousandths of each that a pod asks for: (0, 0), (1, share) or (devices, 1000)."""
    devices, share = row["num_gpu"].number(MAX_DEVICES), row["gpu_milli"].number(MILLI_PER_DEVICE)
    if devices > 1:
        # The trace writes 1000 here; the data manifest says to take whole devices whatever it writes.
        return devices, MILLI_PER_DEVICE
    if devices == 1 and share == 0:
        raise row["gpu_milli"].bad("a pod with one GPU needs a share from 1 to 1000")
    if devices == 0 and share > 0:
        raise row["num_gpu"].bad("a share of a GPU needs num_gpu 1")
    return devices, share


def gpu_models(cell: Cell) -> list[str]:
    """The GPU models a pod accepts, each once, in the cell's order; [] for any."""
    if not cell.text.strip():
        return []
    parts = cell.text.strip().split("|")
    return list(dict.fromkeys(Cell(cell.file, cell.line, cell.column, part or cell.text).label() for part in parts))
