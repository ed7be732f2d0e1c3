"""in-toto statements with SLSA provenance: of which commit and which locks something was made, and by what."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.locks import ROOT

Json = dict[str, Any]
STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://conclave.io/release/v1"
"""What ``externalParameters`` mean: the target of ``make`` and the platforms."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a release is made of. ``commit``: 40 hex digits; ``made_at``: its time, RFC 3339; ``repository``: a URL."""

    commit: str
    made_at: str
    repository: str
    builder: str


def digest(data: bytes) -> str:
    """Its sha256, in hex."""
    return hashlib.sha256(data).hexdigest()


def predicate(source: Source, target: str, inputs: Sequence[Path], **parameters: Any) -> Json:
    """What cosign attests of an image, whose digest it adds itself. ``inputs``: files beside the commit that pin."""
    dependencies = [{"uri": f"git+{source.repository}", "digest": {"gitCommit": source.commit}}]
    dependencies += [
        {"uri": f"file:{path.relative_to(ROOT)}", "digest": {"sha256": digest(path.read_bytes())}} for path in inputs
    ]
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"target": target, **parameters},
            "internalParameters": {},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": source.builder},
            "metadata": {"invocationId": f"{source.commit}/{target}", "startedOn": source.made_at},
        },
    }


def statement(subjects: Mapping[str, bytes], provenance: Json) -> Json:
    """Of files, by name."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest(data)}} for name, data in sorted(subjects.items())],
        "predicateType": PREDICATE,
        "predicate": provenance,
    }
