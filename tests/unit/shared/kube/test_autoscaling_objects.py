"""ResilientAutoscaler objects: what is taken from them, and what is told of those that cannot be used."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml

from shared.autoscaling.approval import digest_of
from shared.errors import KubeUnknown
from shared.kube.objects import ObjectMeta
from shared.kube.scaling.autoscaling import AutoscalerObject, autoscaler_from_api, loop_in
from shared.kube.scaling.scaled_objects import (
    ManagedFields,
    ScaledMeta,
    decode_metric_values,
    last_writer,
)
from shared.model.controllers.autoscaler import Autoscaler, ForeignWriter, ScalerMode, ScalingSignal, SourceKind
from tests.manifests.rendering import ROOT
from twin.custom.schema import default, validate

CRD = yaml.safe_load((ROOT / "k8s/components/autoscaler/resilientautoscalers-crd.yaml").read_text())
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
EXAMPLE = list(yaml.safe_load_all((ROOT / "docs/examples/autoscaled.yaml").read_text()))[1]


def read(spec: Any) -> Autoscaler:
    return autoscaler_from_api(AutoscalerObject(ObjectMeta(name="graph", namespace="shop", uid="u"), spec))


def target(name: str = "front", **more: Any) -> dict[str, Any]:
    return {"name": name, "scaleTargetRef": {"name": name}, "maxReplicas": 9, **more}


def test_the_example_is_valid_and_its_defaults_are_those_of_the_schema():
    spec = {"metadata": {}, "spec": dict(EXAMPLE["spec"])}
    default(spec, SCHEMA)
    assert validate(spec, SCHEMA) == []
    with_defaults, without = read(spec["spec"]), read(EXAMPLE["spec"])
    assert with_defaults.problems == ()
    for field in (
        "mode",
        "policy",
        "seed",
        "limits",
        "paused",
        "plain_hpa",
        "canary_services",
        "canary_time",
        "targets",
    ):
        assert getattr(with_defaults, field) == getattr(without, field), field


def test_demand_decides_by_default_where_its_readings_have_sources_and_hpa_elsewhere():
    def sources(*signals: str) -> list[dict[str, str]]:
        return [{"signal": one, "type": "Prometheus", "query": one} for one in signals]

    whole, half = sources("arrivals", "served", "cpu"), sources("arrivals", "served")
    by_all = {"targets": [target("a", metrics=whole), target("b", metrics=whole)]}
    assert read(by_all).policy == "demand"
    assert read({**by_all, "policy": {"name": "hpa"}}).policy == "hpa"
    assert read({"targets": [target("a", metrics=whole), target("b", metrics=half)]}).policy == "hpa"
    assert read({"targets": [target()]}).policy == "hpa"
    assert read({**by_all, "policy": {"settings": {"target": 60}}}).policy == "hpa"  # these were always HPA's
    named = read({**by_all, "policy": {"name": "demand"}})
    assert read(by_all).document == named.document, "an approval is for who decides, however it came to"
    spec = {"metadata": {}, "spec": by_all}
    default(spec, SCHEMA)
    assert "name" not in spec["spec"]["policy"]  # or the API server would have decided


def test_every_part_of_an_object_is_read():
    found = read(
        {
            "mode": "act-on-hpa-bounds", "policy": {"name": "keda", "seed": 3, "settings": {"trigger": "queue"}},
            "killSwitch": "PlainHPA", "paused": True, "canary": {"servicesPercent": 10, "timePercent": 20},
            "objectives": {"latencySeconds": 0.5, "success": 0.99, "costLimit": 40},
            "go": {"by": "ada", "digest": "sha256:1", "at": "monday"}, "limits": {"upPods": 2, "nodesGrow": True},
            "targets": [
                target(calls=["cart"], hpa="front", metrics=[
                    {"signal": "latency", "type": "Prometheus", "query": "q", "unit": "milliseconds"},
                    {"signal": "queue", "type": "External", "metric": "m", "selector": {"matchLabels": {"a": "b"}}},
                ]),
                target("cart"),
            ],
        }
    )  # fmt: skip
    assert found.problems == ()
    assert (found.mode, found.policy, found.plain_hpa, found.paused) == (ScalerMode.ACT_ON_BOUNDS, "keda", True, True)
    assert found.calls == (("front", "cart"),)
    sources = found.targets[0].sources
    assert sources[ScalingSignal.LATENCY].scale == 0.001
    assert (sources[ScalingSignal.QUEUE].kind, sources[ScalingSignal.QUEUE].selector) == (SourceKind.EXTERNAL, "a=b")
    assert found.targets[1].sources.keys() == {ScalingSignal.CPU, ScalingSignal.MEMORY}
    assert "go" not in found.document
    assert "paused" not in found.document


@pytest.mark.parametrize(
    ("spec", "field", "word"),
    [
        (None, "spec.targets", "at least one"),
        ("text", "spec.", "object"),
        ({"targets": [target(minReplicas=5, maxReplicas=2)]}, "targets[0].minReplicas", "lower the one"),
        ({"targets": [{"name": "a", "scaleTargetRef": {"name": "a"}}]}, "targets[0].maxReplicas", "at most"),
        ({"targets": [target(), target()]}, "targets[1].name", "twice"),
        ({"targets": [target(calls=["nobody"])]}, "targets[0].calls", "none of the targets"),
        ({"targets": [target(calls=["b"]), target("b", calls=["front"])]}, "spec.targets", "loop"),
        ({"targets": [target()], "mode": "act"}, "spec.mode", "observe or recommend"),
        ({"targets": [target()], "killSwitch": "yes"}, "spec.killSwitch", "PlainHPA"),
        ({"targets": [target(metrics=[{"signal": "joy"}])]}, "metrics[0].signal", "arrivals"),
        ({"targets": [target(metrics=[{"signal": "queue", "type": "Resource"}])]}, "metrics[0].type", "cpu and memory"),
        ({"targets": [target(metrics=[{"signal": "queue", "type": "Prometheus"}])]}, "metrics[0].query", "one number"),
        (
            {"targets": [target(metrics=[{"signal": "cpu", "type": "External", "metric": "m", "unit": "seconds"}])]},
            "metrics[0].unit",
            "millicores",
        ),
        (
            {"targets": [target(metrics=[{"signal": "queue", "type": "External", "metric": "m",
                                          "selector": {"matchLabels": {"a&b": "x\n"}}}])]},
            "matchLabels",
            "no label",
        ),
        ({"targets": [target()], "limits": {"staleSeconds": float("nan")}}, "limits.staleSeconds", "1 to 86400"),
        ({"targets": [target()], "objectives": {"success": 99}}, "objectives.success", "0 to 1"),
        ({"targets": [target()], "policy": {"name": "\x1b[31m"}}, "policy.name", "printable"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line_with_field_and_remedy(spec: Any, field: str, word: str):
    (line, *_) = [line for line in read(spec).problems if field in line]
    assert word in line
    assert line.isprintable()
    assert len(line) < 300


def test_anything_at_all_is_read_without_an_error():
    rng = random.Random(1)
    values = [None, 0, -1, 1.5, "", "x", [], {}, [None], {"a": 1}, True, float("nan"), 10**30]
    names = list(SCHEMA["properties"]["spec"]["properties"])
    for _ in range(2000):
        spec = {name: rng.choice(values) for name in rng.sample(names, 5)}
        if rng.random() < 0.5:
            fields = ("name", "scaleTargetRef", "minReplicas", "maxReplicas", "calls", "hpa", "metrics")
            spec["targets"] = [{name: rng.choice(values) for name in fields}]
        assert isinstance(read(spec).problems, tuple)


def test_a_loop_is_found_and_named_and_wide_graphs_cost_little():
    assert loop_in({"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}) == ()
    found = loop_in({"a": ("b",), "b": ("c",), "c": ("b",)})
    assert set(found) == {"b", "c"}
    assert found[0] == found[-1]
    names = [f"s{number}" for number in range(32)]
    assert loop_in({name: tuple(names[index + 1 :]) for index, name in enumerate(names)}) == ()


@pytest.mark.parametrize("value", ['"NaN"', '""', "{}"])
def test_one_metric_value_that_cannot_be_read_spoils_the_sum(value: str):
    good = '{"timestamp": "2026-11-23T12:00:00Z", "value": "1500m"}'
    (found,) = decode_metric_values(f'{{"items": [{good}]}}'.encode())
    assert found[0] == 1.5
    bad = f'{{"timestamp": "2026-11-23T12:00:00Z", "value": {value}}}'
    with pytest.raises(KubeUnknown):
        decode_metric_values(f'{{"items": [{good}, {bad}]}}'.encode())


def test_the_last_writer_of_the_replicas_is_found_unless_it_is_us():
    def wrote(manager: str, time: str, field: str = "f:replicas") -> ManagedFields:
        return ManagedFields(manager=manager, time=time, fields_v1={"f:spec": {field: {}}})

    keda = wrote("keda-operator", "2026-11-23T12:00:00Z")
    ours = wrote("conclave", "2026-11-23T13:00:00Z")
    template = wrote("kubectl", "2026-11-23T14:00:00Z", "f:template")
    assert last_writer(ScaledMeta(managed_fields=[keda, template]), but="conclave") == "keda-operator"
    assert last_writer(ScaledMeta(managed_fields=[keda, ours]), but="conclave") == ""
    assert last_writer(ScaledMeta(), but="conclave") == ""


def test_a_whole_number_beyond_any_float_is_a_problem_of_its_object():
    found = read({"targets": [target()], "objectives": {"costLimit": 10**400}})
    assert found.problems[0].startswith("spec.objectives.costLimit")
    assert read({"targets": [target()], "objectives": {"success": float("nan")}}).problems


def test_settings_of_absurd_depth_are_a_problem_of_their_object():
    """Their digest would end the process by a RecursionError."""
    deep: Any = 1
    for _ in range(5000):
        deep = {"a": deep}
    found = read({"targets": [target()], "policy": {"settings": deep}})
    assert found.problems == ("spec.policy: has more than 32 levels; make it flatter",)
    assert digest_of(found.document).startswith("sha256:")
    assert read({"targets": [target()], "policy": {"settings": {"behavior": {"scaleDown": {}}}}}).problems == ()


@pytest.mark.parametrize("where", ["hpaRule", "policy"])
def test_the_schema_bounds_the_window_of_hpas_rule(where: str):
    settings = {"down_window_s": 86_400}
    spec = {"targets": [target()], where: {"settings": settings} if where == "policy" else settings}
    whole = {"metadata": {}, "spec": spec}
    default(whole, SCHEMA)
    assert "down_window_s" in str(validate(whole, SCHEMA))
    settings["down_window_s"] = 300
    assert validate(whole, SCHEMA) == []


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchLabels": {"a": "b"}}, "a=b"),
        ({"matchExpressions": [{"key": "q", "operator": "In", "values": ["x", "y"]}]}, "q in (x,y)"),
        ({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "q", "operator": "Exists"}]}, "a=b,q"),
        ({"matchExpressions": [{"key": "q", "operator": "Gt", "values": ["1"]}]}, None),
        ({"matchExpressions": [{"key": "q", "operator": "In"}]}, None),
        ({"matchExpressions": "q"}, None),
        ({"matchLabel": {"a": "b"}}, None),
    ],
)
def test_a_metrics_selector_takes_expressions_and_never_stands_for_everything(selector: Any, text: str | None):
    metric = {"signal": "queue", "type": "External", "metric": "m", "selector": selector}
    found = read({"targets": [target(metrics=[metric])]})
    if text is None:
        assert found.problems[0].startswith("spec.targets[0].metrics[0].selector")
    else:
        assert found.targets[0].sources[ScalingSignal.QUEUE].selector == text


def test_the_answer_to_foreign_writers_is_hold_where_nothing_is_said():
    assert read({"targets": [target()]}).foreign_writer is ForeignWriter.HOLD
    assert read({"targets": [target()], "foreignWriter": "correct"}).foreign_writer is ForeignWriter.CORRECT
    assert "hold or correct" in read({"targets": [target()], "foreignWriter": "fight"}).problems[0]
    # a default in the schema would change the digest of what was approved before there was this field
    whole = {"metadata": {}, "spec": {"targets": [target()]}}
    default(whole, SCHEMA)
    assert "foreignWriter" not in whole["spec"]
