"""`python -m release`: what of a release needs no network, into one folder, and the script that publishes it.

It reads the commit, the locks and the chart; it fetches and publishes nothing. The same commit gives the same bytes.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from release.archives import archive, chart_archive
from release.chart.generate import CHART, DIGESTS, digests
from release.krew import LAUNCHER, krew_manifest
from release.locks import ROOT, contents, image_locks
from release.provenance import Source, digest, predicate, statement
from release.publishing import PLATFORMS, script
from release.sbom import sbom
from shared.version import CONCLAVE_VERSION

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
VEX = ROOT / "docs" / "security" / "openvex.json"


def main(given: Sequence[str] | None = None) -> int:
    """Write the folder; 2 with one line where the source is not what would be released."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "release", help="the folder (dist/release)")
    parser.add_argument("--registry", default="registry.example.com/conclave/", help="images' prefix, with its slash")
    parser.add_argument("--downloads", default="https://example.com/conclave/releases", help="where files will lie")
    parser.add_argument("--repository", default="https://example.com/conclave", help="the source's URL")
    parser.add_argument("--builder", default="https://example.com/conclave/make-release", help="who builds, as a URI")
    parser.add_argument("--base", default="python:3.11-slim-bookworm", help="images' base")
    parser.add_argument("--dirty", action="store_true", help="of a tree with changes too: for trying it out")
    asked = parser.parse_args(given)
    problem = refused(asked.registry, dirty=asked.dirty)
    if problem:
        sys.stderr.write(f"release: {problem}\n")
        return 2
    files = release(asked)
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (asked.out / name).write_bytes(data)
    sys.stdout.write(files["publish.sh"].decode())
    sys.stdout.write(f"# {len(files)} files in {asked.out}; to publish: sh {asked.out / 'publish.sh'}\n")
    return 0


def refused(registry: str, *, dirty: bool) -> str:
    """Why nothing is released; "" where all is well."""
    if not registry.endswith("/"):
        return f"--registry {registry}: end it with a slash"
    if json.loads((CHART / DIGESTS).read_text(encoding="utf-8")) != digests():
        return "k8s/chart is not what `make chart` makes; run it and commit"
    changed = [] if dirty else git("status", "--porcelain").splitlines()
    return f"{changed[0][3:]} and perhaps more is not committed; commit, or give --dirty" if changed else ""


def release(asked: argparse.Namespace) -> dict[str, bytes]:
    """Every file of the release, by name."""
    seconds = int(git("log", "-1", "--format=%ct"))
    made_at = dt.datetime.fromtimestamp(seconds, dt.UTC)
    source = Source(git("rev-parse", "HEAD"), made_at.strftime("%Y-%m-%dT%H:%M:%SZ"), asked.repository, asked.builder)
    chart = f"conclave-{CONCLAVE_VERSION}.tgz"
    plugin = f"kubectl-conclave-{CONCLAVE_VERSION}.tar.gz"
    files = {
        chart: chart_archive(CHART, made_at=seconds),
        plugin: archive(
            {"kubectl-conclave": LAUNCHER.encode(), "LICENSE": (ROOT / "LICENSE").read_bytes()},
            made_at=seconds, executable=frozenset({"kubectl-conclave"}),
        ),
        "openvex.json": VEX.read_bytes(),
    }  # fmt: skip
    uri = f"{asked.downloads}/v{CONCLAVE_VERSION}/{plugin}"
    files["conclave.krew.yaml"] = yaml.safe_dump(krew_manifest(uri, digest(files[plugin])), sort_keys=False).encode()
    subjects = {name: files[name] for name in (chart, plugin)}
    made = predicate(source, "release", [ROOT / "pyproject.toml"])
    files["files.intoto.json"] = _json(statement(subjects, made))
    for image in IMAGES:
        files[f"{image}.cdx.json"] = sbom(image, contents(image), made_at=made_at).encode()
        inputs = [*image_locks(image), ROOT / "Dockerfile"]
        files[f"{image}.provenance.json"] = _json(
            predicate(source, f"conclave-{image}", inputs, platforms=sorted(PLATFORMS), base=asked.base)
        )
    signed = (chart, plugin, "conclave.krew.yaml", "files.intoto.json", "SHA256SUMS")
    files["publish.sh"] = script(
        IMAGES,
        signed,
        registry=asked.registry,
        version=CONCLAVE_VERSION,
        base=asked.base,
        commit="" if asked.dirty else source.commit,
        downloads=f"{asked.downloads}/v{CONCLAVE_VERSION}",
    ).encode()
    files["SHA256SUMS"] = "".join(f"{digest(data)}  {name}\n" for name, data in sorted(files.items())).encode()
    return files


def git(*arguments: str) -> str:
    """What git says of this repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


if __name__ == "__main__":
    sys.exit(main())
