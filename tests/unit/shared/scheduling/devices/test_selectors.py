"""CEL selectors: what they say of a device, as Kubernetes defines it, and what bounds them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from shared.model.devices import Capacity, DeviceAttribute, nanos_of
from shared.scheduling.devices.cel import expressions
from shared.scheduling.devices.cel.expressions import DeviceSelectorError
from shared.scheduling.devices.cel.selectors import Facts, Selectors
from shared.scheduling.state.releases import Release

DRIVER = "gpu.example.com"
GPU = Facts(
    DRIVER,
    shareable=True,
    attributes=(
        ("example.com/links", DeviceAttribute("ints", (1, 2, 3))),
        ("healthy", DeviceAttribute("bool", True)),
        ("model", DeviceAttribute("string", "A100")),
        ("numa", DeviceAttribute("int", 1)),
        ("version", DeviceAttribute("version", "2.0.0-rc.1")),
    ),
    capacity=(("memory", Capacity(nanos_of("40Gi"))), ("share", Capacity(nanos_of("500m")))),
)
OWN, CAPACITY = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'
SELECTORS = Selectors()


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        (f'device.driver == "{DRIVER}" && device.allowMultipleAllocations', True),
        (f"{OWN}.healthy", True),
        (f'{OWN}.model == "A100"', True),
        (f"{OWN}.numa == 1.0", True),
        (f'{OWN}.numa == "1"', False),
        (f"{OWN}.?size.orValue(7) == 7", True),
        (f'{OWN}[?"numa"].orValue(-1) >= 0', True),
        (f"has({OWN}.model) && !has({OWN}.size)", True),
        (f'cel.bind(own, {OWN}, own.numa == 1 && own.model.startsWith("A"))', True),
        # unknown domains are empty maps, wherever they are asked for ...
        ('!("model" in device.attributes["no.such.domain"])', True),
        ('has(device.attributes["no.such.domain"].model)', False),
        ("has(device.attributes.anything)", True),
        ('device.attributes[?"no.such.domain"].hasValue()', True),
        ('cel.bind(d, device, d.attributes["no.such.domain"].?x.orValue(1) == 1)', True),
        ('cel.bind(a, device.attributes, a["no.such.domain"].?x.orValue(1) == 1)', True),
        ('["example.com", "no.such.domain"].exists(d, "links" in device.attributes[d])', True),
        ('device.attributes[device.driver].model == "A100"', True),
        ('device.attributes["no." + "such"].?x.orValue(1) == 1', True),
        # ... but not there when it is asked which there are
        ('"no.such.domain" in device.attributes', False),
        ("size(device.attributes) == 2", True),
        ('device.attributes.exists(d, d == "example.com")', True),
        (
            'device.attributes.all(d, d != "no.such.domain") && device.attributes["no.such.domain"].?x.orValue(1) == 1',
            True,
        ),
        (f'{OWN}.version.compareTo(semver("1.9.0")) > 0', True),
        (f'{OWN}.version.isGreaterThan(semver("2.0.0"))', False),
        (f'{OWN}.version == semver("2.0.0-rc.1+build.5")', True),
        (
            'semver("1.10.0").isGreaterThan(semver("1.9.0")) && semver("1.0.0-a.2").isLessThan(semver("1.0.0-a.10"))',
            True,
        ),
        ('semver("v1.2", true).minor() == 2 && !isSemver("v1.2") && isSemver("v1.2", true)', True),
        (f'{CAPACITY}.memory == quantity("40960Mi")', True),
        (f'{CAPACITY}.memory.isLessThan(quantity("80Gi"))', True),
        (f'{CAPACITY}.share.compareTo(quantity("0.5")) == 0 && !{CAPACITY}.share.isInteger()', True),
        ('quantity("1Gi").add(quantity("1Gi")).sub(1024).asInteger() == 2147482624 && isQuantity("3k")', True),
        ('quantity("-1").sign() == -1 && quantity("500m").asApproximateFloat() == 0.5 && !isQuantity("1 Gi")', True),
        ("[3, 1, 2].max() == 3 && [3, 1, 2].min() == 1 && ![3, 1, 2].isSorted()", True),
        ('device.attributes["example.com"].links.includes(2)', True),
        (f'{OWN}.model.includes("A100")', True),
        # || and && absorb the error of the other side
        (f"{OWN}.size == 1 || true", True),
        (f"{OWN}.size == 1 && false", False),
    ],
)
def test_a_selector_says_what_kubernetes_defines(expression: str, says: bool) -> None:
    assert SELECTORS.matches(expression, GPU) is says


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (f"{OWN}.size == 1", "CEL runtime error: no such key: size"),
        ('device.attributes["no.such.domain"].size == 1', "CEL runtime error: no such key: size"),
        ('device.attributes["no." + "such"].size == 1', "CEL runtime error: no such key: size"),
        (f"{OWN}.numa / 0 == 1", "CEL runtime error: division by zero"),
        (f"{OWN}.model", "CEL runtime error: CEL result of type string could not be converted to bool"),
        (
            f'{OWN}.version.compareTo(quantity("1")) > 0',
            "CEL runtime error: no such overload: semver.compareTo(quantity)",
        ),
        ("quantity(device.driver).sign() == 1", "is not a quantity"),
        ('semver("1.2").major() == 1', "is no version such as 1.2.3"),
        ("1 + 1", "CEL compile error: must evaluate to bool or the unknown type, not int"),
        ("device.driver ==", "CEL compile error: compilation failed: ERROR: <input>:1:17"),
        ("device.vendor == 1", "CEL compile error: compilation failed: ERROR: <input>:1:7: undefined field 'vendor'\n"),
        ('device["driver"] == ""', "found no matching overload for '_[_]' applied to '(kubernetes.DRADevice, string)'"),
        ("device.driver == 1", "found no matching overload for '_==_' applied to '(string, int)'"),
        ("device.driver", "CEL compile error: must evaluate to bool or the unknown type, not string"),
        ("true" + " || true" * 1300, "CEL compile error: too long: 10404 characters; at most 10240 are allowed"),
    ],
)
def test_a_selector_that_cannot_be_used_says_why(expression: str, why: str) -> None:
    for _ in range(2):  # the second time from what is remembered
        with pytest.raises(DeviceSelectorError) as error:
            SELECTORS.matches(expression, GPU)
        assert why in str(error.value)


def _loops(depth: int) -> str:
    numbers = "[" + ",".join("1" * 200) + "]"
    text = "true"
    for level in range(depth):
        text = f"{numbers}.all(x{level}, {text})"
    return text


def _doubled(times: int) -> str:
    text = f"size(x{times}) > 0"
    for level in range(times, 0, -1):
        text = f"cel.bind(x{level}, x{level - 1} + x{level - 1}, {text})"
    return f"cel.bind(x0, device.driver, {text})"


DEAR = {
    "loops in loops": _loops(3),
    "a text that doubles": _doubled(20),
    "lists of lists of lists": _loops(3).replace(".all(", ".map(").replace("true", "x0") + ".size() > 0",
}


@pytest.mark.parametrize("kind", DEAR)
def test_what_may_cost_too_much_is_refused_before_it_is_evaluated(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluated(*_: Any, **__: Any) -> None:
        raise AssertionError("it was evaluated")

    selectors = Selectors()
    selectors.matches("true", GPU)
    monkeypatch.setattr("shared.scheduling.devices.cel.selectors._Program.evaluate", evaluated)
    with pytest.raises(DeviceSelectorError, match=r"the expression may cost \d+, more than 1000000"):
        selectors.matches(DEAR[kind], GPU)
    monkeypatch.setattr(expressions, "MOST_COST", 10**40)
    with pytest.raises(AssertionError, match="it was evaluated"):
        Selectors().matches(DEAR[kind], GPU)


def test_usual_selectors_are_far_below_the_bound() -> None:
    for text in (f"{OWN}.model in ['A100', 'H100'] && {OWN}.numa == 1", _loops(1), _doubled(5)):
        assert SELECTORS.matches(text, GPU) in (True, False)


def test_a_selector_is_compiled_once_and_asked_once_about_devices_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    selectors = Selectors()
    evaluated: list[Facts] = []
    expression = f'{OWN}.model == "A100" && {OWN}.numa < 9'
    selectors.matches(expression, GPU)
    monkeypatch.setattr(Selectors, "_compiled", None)  # a second compilation would fail
    program = selectors._programs[expression]
    real = type(program).evaluate
    monkeypatch.setattr(type(program), "evaluate", lambda self, facts: evaluated.append(facts) or real(self, facts))
    again = Facts(DRIVER, True, GPU.attributes, GPU.capacity)
    other = Facts(DRIVER, False, GPU.attributes, GPU.capacity)
    assert [selectors.matches(expression, facts) for facts in (GPU, again, other, other)] == [True] * 4
    assert evaluated == [other]


def test_lists_are_values_of_later_releases_alone() -> None:
    expression = 'size(device.attributes["example.com"].links) == 3'
    assert Selectors(Release.V1_38).matches(expression, GPU)
    with pytest.raises(DeviceSelectorError, match=r"attribute example.com/links: unsupported attribute value"):
        Selectors(Release.V1_36).matches(expression, GPU)


def test_without_the_library_the_selector_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    with pytest.raises(DeviceSelectorError, match="selectors of devices need cel-expr-python"):
        Selectors().matches("true", GPU)
