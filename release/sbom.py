"""CycloneDX lists of what images hold, from their lock files; the same input gives the same bytes."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from release.locks import Pinned
from shared.version import CONCLAVE_VERSION

SPACE = uuid.UUID("6f5b2b0e-6d4f-5c7a-9a52-1c8f5d0e7a10")


def own_wheels(image: str) -> list[str]:
    """Our own wheels in an image, as ``images/install.sh`` installs them."""
    return {
        "etcd": [],
        "twin": ["conclave-scheduler", "conclave-twin"],
        "cli": ["conclave-scheduler", "conclave-twin", "conclave-lab"],
        "learner": ["conclave-scheduler", "conclave-twin", "conclave-lab"],
    }.get(image, ["conclave-scheduler"])


def sbom(image: str, packages: Sequence[Pinned], *, made_at: dt.datetime) -> str:
    """The list of one image, as JSON of CycloneDX 1.6. ``made_at``: of the commit, not of the clock."""
    name = f"conclave-{image}"
    root = Component(
        name=name,
        version=CONCLAVE_VERSION,
        type=ComponentType.CONTAINER,
        bom_ref=name,
        purl=PackageURL("oci", None, name, CONCLAVE_VERSION),
    )
    found = [_component(one) for one in packages]
    ours = [_component(Pinned(wheel, CONCLAVE_VERSION, ()), ComponentType.APPLICATION) for wheel in own_wheels(image)]
    serial = uuid.uuid5(SPACE, f"{name} {CONCLAVE_VERSION} {[(one.name, one.version) for one in packages]}")
    bom = Bom(
        components=[*found, *ours],
        serial_number=serial,
        metadata=BomMetaData(component=root, timestamp=made_at),
    )
    bom.register_dependency(root, [*found, *ours])
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _component(one: Pinned, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    purl = PackageURL("pypi", None, one.name, one.version)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in one.hashes]
    source = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(f"https://pypi.org/project/{one.name}/{one.version}/"),
        comment="one of these files is installed, by platform",
        hashes=hashes,
    )
    return Component(
        name=one.name,
        version=one.version,
        type=kind,
        bom_ref=purl.to_string(),
        purl=purl,
        external_references=[source] if hashes else [],
    )
