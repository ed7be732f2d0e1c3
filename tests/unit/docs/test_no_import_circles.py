"""No module imports another that imports it, by whatever way, for its types alone included: what is read needs no
other file to be read first, and each can be changed without the other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HOUSES = ("services", "shared", "lab", "twin")
BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
"""The fields of a node that hold statements, or an except or a case that holds some."""
TOGETHER = {("services.coordinator.core.validate", "services.coordinator.core.core")}
"""(what imports, what it imports) that are one thing in two files: the invariants of a core are its own."""


def modules() -> dict[str, Path]:
    """Every module of the houses."""
    found = (path for house in HOUSES for path in (ROOT / house).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in found}


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement, however deep; expressions are left out: they are nine nodes in ten, and none of them imports."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for within in (getattr(node, field, ()) for field in BLOCKS):
            if isinstance(within, list):  # the body of a lambda or of a conditional expression is none
                waiting.extend(within)


def imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """The known modules that a file imports, wherever in it."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & known
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            parts = {f"{node.module}.{alias.name}" for alias in node.names} & known
            yield from parts or {node.module} & known


def circle_in(imports: dict[str, set[str]]) -> list[str]:
    """The modules of one circle, each imported by the next; empty: there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_module_is_in_a_circle() -> None:
    files = modules()
    imports = {name: set(imported(ast.parse(path.read_text()), files.keys() - {name})) for name, path in files.items()}
    assert len(imports) > 500, "the houses were found"
    for name, other in TOGETHER:
        imports[name].remove(other)
    assert circle_in(imports) == []


@pytest.mark.parametrize(
    ("imports", "circle"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, False),
        ({"a": {"b"}, "b": {"a"}}, True),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, True),
    ],
)
def test_a_circle_is_found_however_long(imports: dict[str, set[str]], circle: bool) -> None:
    assert bool(circle_in(imports)) is circle


def test_imports_for_types_and_within_functions_count_too() -> None:
    text = "if TYPE_CHECKING:\n    from a.b import C\ndef f():\n    import d\n    from a import b\n"
    assert set(imported(ast.parse(text), {"a.b", "d", "e"})) == {"a.b", "d"}


@pytest.mark.parametrize(
    "text",
    [
        "if x:\n    pass\nelif y:\n    import a",
        "for x in y:\n    pass\nelse:\n    import a",
        "try:\n    pass\nexcept X:\n    import a",
        "try:\n    pass\nfinally:\n    import a",
        "match x:\n    case 1:\n        import a",
        "class A:\n    async def f(self):\n        async with x:\n            import a",
    ],
)
def test_an_import_is_found_in_whatever_block_it_stands(text: str) -> None:
    assert set(imported(ast.parse(text), {"a"})) == {"a"}
