"""One word per idea: class names that product code defines twice are listed, and the list only shrinks."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIST = Path(__file__).with_name("shared_class_names.txt")
"""A new class takes a name of its own: the field's term with the domain in front."""


def test_no_class_takes_a_name_that_another_has() -> None:
    names = Counter(
        name
        for house in ("services", "shared", "lab", "twin", "bench")
        for path in (ROOT / house).rglob("*.py")
        for name in re.findall(r"^class ([A-Za-z]\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
    shared = {name for name, count in names.items() if count > 1}
    assert shared == set(LIST.read_text(encoding="utf-8").split()), "remove from the list what is not shared any more"
