"""The commands that publish a release, as one shell script: printed in dry mode, run by ``sh publish.sh``.

wheels of both platforms --> buildx, pushed --digest--> cosign: sign, attest sbom and provenance --> chart, files, PyPI
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

PLATFORMS = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
LIBCS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")


def script(
    images: Sequence[str], files: Iterable[str], *, registry: str, version: str, base: str, commit: str, downloads: str
) -> str:
    """Run it in the repository's root, ``$here`` is the folder that it lies in. It stops at the first failure.

    ``commit``: what the attestations name, so nothing else is built; "" refuses. ``downloads``: where files lie."""
    files = list(files)
    lines = [
        "#!/bin/sh",
        f"# Publishes Conclave {version}. Signatures are keyless: cosign asks for an identity, or takes CI's.",
        "set -eu",
        'here=$(cd "$(dirname "$0")" && pwd)',
        *_refusals(commit, downloads),
        "make wheels",
        *(line for image in images for line in _wheels(image)),
    ]
    for image in images:
        lines += _image(image, f"{registry}conclave-{image}", version, base)
    lines += _chart(registry, version)
    for name in files:
        lines.append(f'cosign sign-blob --yes --bundle "$here/{name}.sigstore.json" "$here/{name}"')
    uploaded = " ".join(f'"$here/{name}" "$here/{name}.sigstore.json"' for name in files)
    lines += [f"$UPLOAD {uploaded}", "twine upload dist/conclave/*.whl"]
    return "\n".join(lines) + "\n"


def _refusals(commit: str, downloads: str) -> list[str]:
    """Before anything is pushed: what is signed is of this commit, and the files have somewhere to go."""

    def refused(why: str) -> str:
        return f"{{ echo {shlex.quote(f'publish.sh: {why}')} >&2; exit 2; }}"

    if not commit:
        return [refused("made with --dirty, of a tree that no commit names: for trying out; nothing is published")]
    return [
        f'test "$(git rev-parse HEAD)" = {commit} || {refused(f"check out {commit}, of which this is the release")}',
        f'test -z "$(git status --porcelain)" || {refused("the tree has changes that the attestations do not name")}',
        f'test -n "${{UPLOAD:-}}" || {refused(f"UPLOAD: give the command that puts files under {downloads}")}',
    ]


def _wheels(image: str) -> list[str]:
    """Those of the platform that this machine is not: pip takes what fits from one folder."""
    locks = [(image, "dist/wheels", ""), *([("torch", "dist/torch", TORCH_INDEX)] if image == "learner" else [])]
    return [
        " ".join(
            [
                ".venv/bin/pip download --quiet --require-hashes --no-deps --python-version 3.11",
                *(f"--platform {libc}_{machine}" for libc in LIBCS),
                f"{more}-r images/{lock}.lock -d {folder}",
            ]
        )
        for lock, folder, more in locks
        for machine in PLATFORMS.values()
    ]


TORCH_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu "


def _image(image: str, name: str, version: str, base: str) -> list[str]:
    build = [
        "docker", "buildx", "build", "--platform", ",".join(PLATFORMS), "--target", image, "--build-arg",
        f"BASE={base}", "--tag", f"{name}:{version}", "--push",
    ]  # fmt: skip
    return [
        f'{shlex.join(build)} --metadata-file "$here/{image}.metadata.json" .',
        f"""digest=$(jq -er '."containerimage.digest"' "$here/{image}.metadata.json")""",
        f'cosign sign --yes --recursive "{name}@$digest"',
        f'cosign attest --yes --type cyclonedx --predicate "$here/{image}.cdx.json" "{name}@$digest"',
        f'cosign attest --yes --type slsaprovenance1 --predicate "$here/{image}.provenance.json" "{name}@$digest"',
        f'cosign attest --yes --type openvex --predicate "$here/openvex.json" "{name}@$digest"',
    ]


def _chart(registry: str, version: str) -> list[str]:
    where = f"{registry}charts"
    return [
        f'pushed=$(helm push "$here/conclave-{version}.tgz" oci://{where} 2>&1) || {{ echo "$pushed" >&2; exit 1; }}',
        """digest=$(printf '%s\\n' "$pushed" | sed -n 's/^Digest: //p')""",
        'test -n "$digest"',
        f'cosign sign --yes "{where}/conclave@$digest"',
    ]
