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
from shared.scheduling.scores import WEIGHTS

Json = dict[str, Any]
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
NOTHING = dict.fromkeys(WEIGHTS, 0)

FORMS: dict[str, tuple[str, list[Json], list[str]]] = {
    # name: (after HEAD, profiles without names and policy, what lines begin with)
    "minimal": ("clientConnection: {kubeconfig: /etc/k}", [{}], ["clientConnection: without effect"]),
    "points": (
        "profiles: [{plugins: {score: {disabled: [{name: PodTopologySpread}], enabled: [{name: MineA, weight: 2}]}}}]",
        [{"scores": {"PodTopologySpread": 0}}],
        ["profiles[0].plugins.score: MineA is not known"],
    ),
    "two profiles": (
        "profiles: [{schedulerName: a}, {schedulerName: none, plugins: {preScore: {disabled: [{name: '*'}]},"
        " score: {disabled: [{name: '*'}]}}}]",
        [{}, {"scores": NOTHING}],
        [],
    ),
    "multipoint": (
        "profiles: [{schedulerName: m, plugins: {multiPoint: {enabled: [{name: Mine}]},"
        " score: {enabled: [{name: ImageLocality, weight: 5}]}, preScore: {disabled: [{name: '*'}]}}}]",
        [{"scores": {"ImageLocality": 5}}],
        ["profiles[0].plugins.multiPoint: Mine is not known", "profiles[0].plugins.preScore.disabled: without effect"],
    ),
    "precedence": (
        "profiles: [{schedulerName: m, plugins: {multiPoint: {disabled: [{name: NodeAffinity}, {name: ImageLocality}]},"
        " filter: {enabled: [{name: NodeAffinity}]}, score: {enabled: [{name: ImageLocality, weight: 3}]}}}]",
        [{"scores": {"NodeAffinity": 0, "ImageLocality": 3}}],
        [],
    ),
    "everything anew": (
        "profiles: [{schedulerName: m, plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: TaintToleration},"
        " {name: NodeAffinity, weight: 7}, {name: PrioritySort}, {name: DefaultBinder}, {name: NodeResourcesFit}]}}}]",
        [
            {
                "filters": {"disabled": ["InterPodAffinity", "NodeUnschedulable", "PodTopologySpread"]},
                "scores": NOTHING | {"TaintToleration": 1, "NodeAffinity": 7} | {"NodeResourcesFit": None},
            }
        ],
        [
            "profiles[0].plugins: DynamicResources filters all the same",
            "profiles[0].plugins.postFilter: DefaultPreempt",
        ],
    ),
    "most allocated": (
        "profiles: [{schedulerName: b, pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type:"
        " MostAllocated, resources: [{name: cpu, weight: 1}, {name: intel.com/foo, weight: 3}]}}}]}]",
        [
            {
                "args": {
                    "NodeResourcesFit": {
                        "scoringStrategy": {
                            "type": "MostAllocated",
                            "resources": [{"name": "cpu", "weight": 1}, {"name": "intel.com/foo", "weight": 3}],
                        }
                    }
                }
            }
        ],
        [],
    ),
    "added affinity": (
        "profiles: [{schedulerName: foo, pluginConfig: [{name: NodeAffinity, args: {addedAffinity:"
        " {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions:"
        " [{key: name, operator: In, values: [foo]}]}]}}}}]}]",
        [
            {
                "args": {
                    "NodeAffinity": {
                        "addedAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {"matchExpressions": [{"key": "name", "operator": "In", "values": ["foo"]}]}
                                ]
                            }
                        }
                    }
                }
            }
        ],
        [],
    ),
    "spread": (
        "profiles: [{schedulerName: s, pluginConfig: [{name: PodTopologySpread, args: {defaultConstraints: [{maxSkew: 1,"
        " topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}], defaultingType: List}}]}]",
        [
            {
                "args": {
                    "PodTopologySpread": {
                        "defaultingType": "List",
                        "defaultConstraints": [
                            {
                                "maxSkew": 1,
                                "topologyKey": "topology.kubernetes.io/zone",
                                "whenUnsatisfiable": "ScheduleAnyway",
                            }
                        ],
                    }
                }
            }
        ],
        [],
    ),
    "second scheduler": (
        "profiles: [{schedulerName: my-scheduler}]\nleaderElection: {leaderElect: false}",
        [{}],
        ["leaderElection: without effect"],
    ),
    "extender": (
        "extenders: [{urlPrefix: 'http://h/x', filterVerb: f, prioritizeVerb: p, weight: 1, enableHTTPS: false,"
        " managedResources: [{name: e.com/foo, ignoredByScheduler: true}]}]",
        [{"args": {"NodeResourcesFit": {"ignoredResources": ["e.com/foo"]}}}],
        [
            "extenders[0]: http://h/x is not called (filterVerb, prioritizeVerb)",
            "extenders[0].managedResources[0]: e.com",
        ],
    ),
    "an operator's: bin packing, removed plugins": (
        "profiles: [{plugins: {score: {disabled: [{name: NodeResourcesLeastAllocated}], enabled:"
        " [{name: NodeResourcesMostAllocated, weight: 100}]}}, pluginConfig: [{name: NodeResourcesMostAllocated,"
        " args: {resources: [{name: cpu, weight: 1}]}}]}]",
        [{}],
        [
            "profiles[0].plugins.score: NodeResourcesMostAllocated is unknown to kube-scheduler 1.36: use NodeResourcesFit",
            "profiles[0].pluginConfig[0]: arguments of NodeResourcesMostAllocated: use NodeResourcesFit",
        ],
    ),
    "an operator's: bin packing for an autoscaler": (
        "profiles: [{schedulerName: bin-packing-scheduler, plugins: {score: {enabled: [{name: NodeResourcesFit,"
        " weight: 10}], disabled: [{name: NodeResourcesBalancedAllocation}]}}, pluginConfig: [{name: NodeResourcesFit,"
        " args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeResourcesFitArgs, scoringStrategy:"
        " {type: MostAllocated}}}]}]",
        [
            {
                "scores": {"NodeResourcesFit": 10, "NodeResourcesBalancedAllocation": 0},
                "args": {"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}}},
            }
        ],
        [],
    ),
    "an operator's: gangs and load": (
        "profiles: [{schedulerName: s, plugins: {queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: '*'}]},"
        " multiPoint: {enabled: [{name: TargetLoadPacking}, {name: NodeResourceTopologyMatch}]}},"
        " pluginConfig: [{name: Coscheduling, args: {permitWaitingTimeSeconds: 10}}, {name: DefaultPreemption,"
        " args: {minCandidateNodesPercentage: 5, minCandidateNodesAbsolute: 100}}]}]",
        [{}],
        [
            "profiles[0].plugins.queueSort: Coscheduling is not Kubernetes' own: pod groups are placed together",
            "profiles[0].plugins.multiPoint: TargetLoadPacking is not Kubernetes' own: give the profile policy: ee",
            "profiles[0].plugins.multiPoint: NodeResourceTopologyMatch is not Kubernetes' own: nodes' zones",
            "profiles[0].pluginConfig[0]: arguments of Coscheduling: pod groups are placed together",
            "profiles[0].pluginConfig[1].args.minCandidateNodesPercentage: without effect",
        ],
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_published_form_is_read_and_each_difference_said(name: str) -> None:
    text, wanted, lines = FORMS[name]
    found = import_config(yaml.safe_load(HEAD + text))
    made = [
        {key: said for key, said in one.items() if key not in ("schedulerName", "policy")} for one in found.profiles
    ]
    for one in wanted:
        for key in [key for key, said in one.get("scores", {}).items() if said is None]:
            del one["scores"][key]  # as it is by default
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
    "[]": "kind: None is no",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_read_is_one_line_that_names_the_field(text: str) -> None:
    with pytest.raises(Wrong, match=WRONG[text]) as caught:
        import_config(yaml.safe_load(text))
    assert "\n" not in str(caught.value)


def run(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(conclave, ["import-config", *arguments], standalone_mode=False)
    if found.exception is not None:
        return 2, "", str(found.exception)
    return int(found.return_value or 0), found.stdout, found.stderr


def test_the_command_writes_a_file_that_is_read_again(tmp_path: Path) -> None:
    file, out = tmp_path / "k.yaml", tmp_path / "profiles.yaml"
    file.write_text(HEAD + FORMS["extender"][0])
    code, printed, told = run(str(file), "--out", str(out))
    assert code == 0
    assert printed == f"{out}: 1 profiles, 3 lines of what differs\n"
    assert told.count("\n") == 3
    assert all(line.startswith(f"{file}: ") for line in told.splitlines())
    text = out.read_text()
    assert text.count("\n# ") == 3
    assert [one.name for one in parse_profiles(yaml.safe_load(text), "made")] == ["default-scheduler"]


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
