"""The HTML report: complete in itself, harmless whatever the names are, and true to the figures."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from math import nan

from lab.evaluation.behaviour import ComparedChoice, behaviour_of
from lab.evaluation.report.charts import MAX_POINTS, curve, distribution, dots, thinned
from lab.evaluation.report.curves import Curves
from lab.evaluation.report.html import render
from lab.evaluation.results import Goal, Paired, ResultMetric, SuiteResult

VOID = {"meta"}
EVIL = '<script>alert("x")</script>&'


class Balanced(HTMLParser):
    """Fails on a tag that is closed wrongly or not at all; collects attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def make_result(name: str = "new") -> SuiteResult:
    policies = {name: {"loss": ResultMetric.of([1.0, 2.0, 4.0])}, "old": {"loss": ResultMetric.of([2.0, 4.0, 5.0])}}
    return SuiteResult(
        name,
        name,
        (42, 43, 60),
        policies,
        paired=(Paired.of("loss", policies, a=name, b="old"),),
        goals=(Goal.at_most("loss", 2.333, 2.5), Goal.at_least(name, 0.8, 0.9), Goal.at_least("never", nan, 1)),
        card_digests={name: name},
        notes=(name,),
    )


def make_behaviour(name: str = "new"):
    choices = [
        ComparedChoice((0.1, 0.1, 1.0, i / 10, 0.1, float(i % 2)), 0.0, i % 2 == 0, float(i % 2)) for i in range(10)
    ]
    return behaviour_of(choices, policy=name, baseline="kube-default", costs={name: (1.0, 2.0)}, seed=1)


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_page_is_well_formed_and_needs_no_other_file() -> None:
    curves = Curves("run", {"loss": tuple((float(i), 1.0 / (i + 1)) for i in range(2000))})
    page = render(make_result(), curves=[curves], behaviours=[make_behaviour()])
    found = parsed(page)
    assert not found.tags & {"script", "link", "img", "iframe", "object", "image", "foreignobject"}
    assert not {key for key, _ in found.attributes} & {"src", "onload"}
    inside = {f"#{value}" for key, value in found.attributes if key == "id"}
    assert {value for key, value in found.attributes if key in ("href", "xlink:href")} <= inside
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= inside
    assert "@import" not in page


def test_no_two_elements_of_a_page_share_an_identifier() -> None:
    page = render(make_result(), curves=[Curves("run", {"loss": ((1, 2), (3, 4)), "gain": ((1, 2), (3, 4))})])
    identifiers = [value for key, value in parsed(page).attributes if key == "id"]
    assert len(identifiers) == len(set(identifiers))


def test_text_from_outside_is_escaped() -> None:
    page = render(make_result(EVIL), curves=[Curves(EVIL, {EVIL: ((1, 2), (3, 4))})], behaviours=[make_behaviour(EVIL)])
    assert "script" not in parsed(page).tags
    assert "<script" not in page


def test_goals_are_told_in_words() -> None:
    text = " ".join(parsed(render(make_result())).text)
    assert "1 of 3 goals were met." in text
    assert text.count("not met") == 2


def test_figures_are_mean_and_deviation_of_the_seeds() -> None:
    text = "|".join(parsed(render(make_result())).text)
    assert "2.33 ± 1.53" in text
    assert "42-43, 60" in text


def test_colours_are_given_for_light_and_dark() -> None:
    page = render(make_result())
    light, dark = re.findall(r":root \{([^}]*)\}", page)
    names = set(re.findall(r"--\w+", dark))
    assert {f"--s{number}" for number in range(6)} <= names
    assert names <= set(re.findall(r"--\w+", light))


def test_each_seed_is_one_dot() -> None:
    drawn = dots({"a": ResultMetric.of([1, 2, nan]), "b": ResultMetric.of([3, 4, 5])}, name="x")
    assert len(re.findall(r'<use xlink:href="#[^"]*" x="[^"]*" y="[^"]*" style="fill: var\(--s', drawn)) == 5


def test_a_drawing_takes_its_colours_from_the_page_and_its_words_as_they_are() -> None:
    drawn = dots({"$x^{": ResultMetric.of([1, 2]), "b": ResultMetric.of([3, 4])}, name="x")
    assert "$x^{" in drawn
    used = set(re.findall(r"var\(--\w+\)|currentColor", drawn))
    assert used == {"var(--s0)", "var(--s1)", "currentColor", "var(--line)"}


def test_what_has_no_number_is_not_drawn() -> None:
    assert dots({"a": ResultMetric.of([nan])}, name="x") == ""
    assert curve([(1.0, nan)], name="x") == ""


def test_a_report_of_forty_drawings_stays_below_a_megabyte() -> None:
    drawn = dots(
        {f"policy {at}": ResultMetric.of([0.1 * at + seed for seed in range(10)]) for at in range(8)}, name="loss"
    )
    assert 40 * len(drawn) < 1_000_000


def test_a_long_curve_is_thinned_by_means() -> None:
    shown = thinned([(float(i), float(i)) for i in range(4000)])
    assert len(shown) == MAX_POINTS
    assert shown[0] == (4.5, 4.5)


def test_many_figures_are_grouped_and_only_what_is_promised_is_drawn() -> None:
    names = [f"place{at}/{figure}" for at in range(20) for figure in ("loss", "count")]
    policies = {policy: {name: ResultMetric.of([1.0, 2.0]) for name in names} for policy in ("new", "old")}
    goals = (Goal.at_most("place3/loss", 1.5, 2.0),)
    page = render(SuiteResult("s", "c", (1, 2), policies, goals=goals))
    assert parsed(page)
    assert page.count("<details") == 20
    assert page.count("<svg") == 1
    assert page.count("1.50 ± 0.7071") == 2 * len(names)


def test_a_distribution_shows_each_policy_and_nothing_where_there_is_nothing():
    drawn = distribution({"a": [0.1, 1.0, 10.0], "b": [0.0, nan, 5.0]}, name="hours")
    assert drawn.count("var(--s0)") >= 1
    assert drawn.count("var(--s1)") >= 1
    assert distribution({"a": [0.0, nan]}, name="hours") == ""
