"""What a kube-scheduler's configuration comes to, of the forms that Kubernetes' pages and operators' blogs show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from services.cli.app import conclave
from services.cli.imports.counterparts import GONE, OUT_OF_TREE
from services.cli.imports.kube_scheduler import import_config
from shared.runtime.process.profile_arguments import Wrong
from shared.runtime.process.profiles_file import parse_profiles

Json = dict[str, Any]
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

FORMS: dict[str, Json] = {
    one["form"]: one for one in yaml.safe_load(Path(__file__).with_name("forms.yaml").read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("name", FORMS)
def test_each_published_form_is_read_and_each_difference_said(name: str) -> None:
    wanted, lines = FORMS[name]["profiles"], FORMS[name]["lines"]
    found = import_config(FORMS[name]["configuration"])
    made = [
        {key: said for key, said in one.items() if key not in ("schedulerName", "policy")} for one in found.profiles
    ]
    assert made == wanted
    told = [line for line in found.lines if "is what kube-scheduler serves" not in line]
    for begins in lines:
        assert any(line.startswith(begins) for line in told), (begins, told)
    assert lines or not told
    assert len(parse_profiles({"profiles": found.profiles}, "made")) == len(wanted)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1beta3", "v1alpha1"])
def test_a_version_that_is_no_longer_read_is_refused_with_the_remedy(version: str) -> None:
    document = {"apiVersion": f"kubescheduler.config.k8s.io/{version}", "kind": "KubeSchedulerConfiguration"}
    with pytest.raises(Wrong, match=r"apiVersion: .*since 1\.29; write kubescheduler\.config\.k8s\.io/v1, and"):
        import_config(document)


WRONG = {
    "kind: Policy": "kind: 'Policy' is no KubeSchedulerConfiguration",
    HEAD + "profile: []": "profile: unknown field; there is",
    HEAD + "profiles: {}": "profiles: must be a list",
    HEAD + "profiles: [{plugins: {scores: {}}}]": r"profiles\[0\]\.plugins\.scores: unknown field",
    HEAD + "profiles: [{plugins: {score: {enabled: [{name: X, weight: -1}]}}}]": "the weight of X",
    HEAD + "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}]}]": (
        r"profiles\[0\]\.pluginConfig\[0\]\.args\.hardPodAffinityWeight: 101 must be a whole number from 0 to 100"
    ),
    HEAD + "profiles: [{pluginConfig: [{name: TaintToleration, args: {x: 1}}]}]": "TaintToleration takes no arguments",
    HEAD
    + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {kind: FooArgs}}]}]": "write NodeResourcesFitArgs",
    HEAD + "extenders: [{filterVerb: x}]": r"extenders\[0\]\.urlPrefix: must be a URL",
    HEAD + "profiles: [{pluginConfig: [{name: [a]}]}]": r"name: \['a'\] is no plugin's name",
    "[]": "kind: None is no",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_read_is_one_line_that_names_the_field(text: str) -> None:
    with pytest.raises(Wrong, match=WRONG[text]) as caught:
        import_config(yaml.safe_load(text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("point", "name", "told"),
    [
        ("score", "NodeResourceFit", "nothing to leave out; did you mean NodeResourcesFit?"),
        ("multiPoint", "Coscheduling", "nothing to leave out"),
        ("filter", "ours.example.com/x", "nothing to leave out"),
    ],
)
def test_an_unknown_name_under_disabled_is_one_line(point: str, name: str, told: str) -> None:
    found = import_config(yaml.safe_load(HEAD) | {"profiles": [{"plugins": {point: {"disabled": [{"name": name}]}}}]})
    (line,) = [one for one in found.lines if name in one]
    assert line == f"profiles[0].plugins.{point}.disabled: without effect: {name} is not known here: there is {told}"
    assert "filters" not in found.profiles[0]
    assert "scores" not in found.profiles[0]


def test_an_unknown_name_under_enabled_is_told_what_it_may_have_been() -> None:
    plugins = {"score": {"enabled": [{"name": "ImageLocalty"}]}}
    found = import_config(yaml.safe_load(HEAD) | {"profiles": [{"plugins": plugins}]})
    (line,) = [one for one in found.lines if "ImageLocalty" in one]
    assert line.endswith("; did you mean ImageLocality?")


def run(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(conclave, ["import-config", *arguments], standalone_mode=False)
    if found.exception is not None:
        return 2, "", str(found.exception)
    return int(found.return_value or 0), found.stdout, found.stderr


def test_the_command_writes_a_file_that_is_read_again(tmp_path: Path) -> None:
    file, out = tmp_path / "k.yaml", tmp_path / "profiles.yaml"
    file.write_text(yaml.safe_dump(FORMS["extender"]["configuration"]))
    code, printed, told = run(str(file), "--out", str(out))
    assert code == 0
    assert printed == f"{out}: 1 profiles, 3 lines of what differs\n"
    assert told.count("\n") == 3
    assert all(line.startswith(f"{file}: ") for line in told.splitlines())
    text = out.read_text()
    assert text.count("\n# ") == 3
    assert [one.name for one in parse_profiles(yaml.safe_load(text), "made")] == ["default-scheduler"]


def test_a_value_of_several_lines_becomes_no_field_of_the_file(tmp_path: Path) -> None:
    file, out = tmp_path / "k.yaml", tmp_path / "profiles.yaml"
    plugin = "Mine\nprofiles: [{schedulerName: evil}]\nx: 1\0"
    enabled = {"score": {"enabled": [{"name": plugin}]}}
    document = yaml.safe_load(HEAD) | {"profiles": [{"schedulerName": "s", "plugins": enabled}]}
    file.write_text(yaml.safe_dump(document))
    assert run(str(file), "--out", str(out))[0] == 0
    assert "# " in out.read_text()
    assert [one["schedulerName"] for one in yaml.safe_load(out.read_text())["profiles"]] == ["s"]
    assert "x" not in yaml.safe_load(out.read_text())
    assert [line for line in out.read_text().splitlines() if line.startswith(("profiles", "x"))] == ["profiles:"]


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "profiles: [{schedulerName: a}, {schedulerName: a}]",
        HEAD + "profiles: [{schedulerName: Not_A_Name}]",
        "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration",
        "a: [",
    ],
)
def test_nothing_is_written_where_the_file_is_refused(tmp_path: Path, text: str) -> None:
    file, out = tmp_path / "k.yaml", tmp_path / "profiles.yaml"
    file.write_text(text)
    code, _, problem = run(str(file), "--out", str(out))
    assert code == 2
    assert problem.startswith(f"{file}: ")
    assert "\n" not in problem
    assert not out.exists()


def test_strict_writes_nothing_where_pods_would_go_elsewhere(tmp_path: Path) -> None:
    file, out = tmp_path / "k.yaml", tmp_path / "profiles.yaml"
    file.write_text(HEAD + "profiles: [{schedulerName: s, plugins: {multiPoint: {enabled: [{name: Mine}]}}}]")
    assert run(str(file), "--out", str(out), "--strict")[0] == 2
    assert not out.exists()
    file.write_text(HEAD + "profiles: [{schedulerName: s}]\nparallelism: 4")
    assert run(str(file), "--out", str(out), "--strict")[0] == 0


def test_counterparts_name_pages_that_are_there() -> None:
    for text in (*OUT_OF_TREE.values(), *GONE.values()):
        for word in text.replace("(", " ").replace(")", " ").split():
            assert not word.startswith("docs/") or Path(word).exists(), word
