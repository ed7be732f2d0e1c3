"""Regular expressions as the API server reads them: RE2's syntax, searched for anywhere in the text.

RE2 itself comes with the evaluator of rules; without that package Python's own does, which takes more than RE2
(lookaheads) and knows less (``\\pL``, ``\\z``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache


@lru_cache(maxsize=512)
def _searcher(pattern: str) -> Callable[[str], bool] | str:
    """What searches a text, or why the pattern is none."""
    try:
        from cel_expr_python import cel
    except ImportError:
        try:
            found = re.compile(pattern)
        except re.error as error:
            return f"error parsing regexp: {error}"
        return lambda text: found.search(text) is not None
    program = cel.NewEnv(variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING}).compile(
        "text.matches(pattern)"
    )

    def search(text: str) -> bool:
        return program.eval(data={"text": text, "pattern": pattern}).value() is True

    result = program.eval(data={"text": "", "pattern": pattern})
    if result.type() == cel.Type.ERROR:
        return f"error parsing regexp: {result.value()}"
    return search


def pattern_problem(pattern: str) -> str:
    """Why this is no regular expression; empty when it is one."""
    found = _searcher(pattern)
    return found if isinstance(found, str) else ""


def matches(pattern: str, text: str) -> bool:
    """Whether ``text`` has a part that the pattern matches. A pattern that is none matches nothing."""
    found = _searcher(pattern)
    return not isinstance(found, str) and found(text)
