"""Expressions compute what they say, and whatever else Python can do is refused by its column."""

from __future__ import annotations

import pytest

from shared.policy.rewards.expression import MOST_CHARACTERS, RewardExpression, RewardFailed, RewardInvalid

FEATURES = ("load", "nodes", "nodes_used", "latency_ms")
VALUES = {"load": 0.25, "nodes": 4.0, "nodes_used": 3.0, "latency_ms": 12.0}


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("1 - nodes_used / nodes", 0.25),
        ("-load * 4 + 2", 1.0),
        ("1 if latency_ms <= 20 else -1", 1.0),
        ("0 < load < 0.2", 0.0),
        ("nodes == 4 and not load > 1", 1.0),
        ("load > 1 or nodes_used != 3", 0.0),
        ("clip(latency_ms, 0, 10) + min(1, 2, 3) + max(0, abs(-5))", 16.0),
        ("  (\nload\n+ 1)", 1.25),
    ],
)
def test_an_expression_is_worth_what_it_says(text: str, worth: float) -> None:
    assert RewardExpression(text, FEATURES)(VALUES) == worth


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("laod + 1", "reward, column 1: there is no feature 'laod'; did you mean load?"),
        ("1 + zzz", "reward, column 5: there is no feature 'zzz'; choose of latency_ms"),
        ("load.real", "column 1: Attribute is not allowed"),
        ("(1).__class__", "Attribute is not allowed"),
        ("__import__('os').system('x')", "Call is not allowed"),
        ("open(1)", "Call is not allowed"),
        ("eval(load)", "Call is not allowed"),
        ("max(load, key=load)", "Call is not allowed"),
        ("max(*load)", "max takes 2 to 16 numbers"),
        ("clip(load)", "clip takes 3 numbers"),
        ("min(load, [1])", "List is not allowed"),
        ("'text'", "Constant is not allowed"),
        ("True", "Constant is not allowed"),
        ("1j", "Constant is not allowed"),
        ("load[0]", "Subscript is not allowed"),
        ("9 ** 9 ** 9", "BinOp is not allowed"),
        ("load // 2", "BinOp is not allowed"),
        ("1 << 900", "BinOp is not allowed"),
        ("~nodes", "UnaryOp is not allowed"),
        ("load in nodes", "Compare is not allowed"),
        ("lambda: 1", "Lambda is not allowed"),
        ("[x for x in nodes]", "ListComp is not allowed"),
        ("(load := 1)", "NamedExpr is not allowed"),
        ("1e400", "a number beyond"),
        ("9" * 400, "a number beyond"),
        ("import os", "column 1: is no expression"),
        ("", "is no expression"),
        ("load load", "is no expression"),
        ("load + \0", "is no expression"),
        ("+".join(["load"] * 150), "more than 200 parts, or 20 within each other"),
        ("min(load, " * 25 + "1" + ")" * 25, "more than 200 parts, or 20 within each other"),
        ("(" * 900 + "1" + ")" * 900, "is no expression"),
        ("1 " * MOST_CHARACTERS, "characters are more than 2000"),
    ],
)
def test_what_is_no_arithmetic_over_features_is_refused_by_its_place(text: str, words: str) -> None:
    with pytest.raises(RewardInvalid) as refused:
        RewardExpression(text, FEATURES)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        ("1 / (load - 0.25)", VALUES, "division by zero"),
        ("load * 1e12 * 1e12", VALUES | {"load": 1e300}, "reward: is inf"),
        ("load", VALUES | {"load": float("nan")}, "reward: is nan"),
        ("load + nodes", {"load": 1.0}, "nodes has no value now"),
    ],
)
def test_what_is_not_finite_is_told_and_never_returned(text: str, values, words: str) -> None:
    with pytest.raises(RewardFailed, match=words):
        RewardExpression(text, FEATURES)(values)


def test_it_says_which_features_it_reads() -> None:
    assert RewardExpression("load + min(nodes, 3) + load", FEATURES).names == {"load", "nodes"}
