"""The page on scheduling fields names every field there is, and says of none that it is read when it is not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from shared.kube import cluster_objects, objects

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "scheduling-fields.md").read_text()
TYPES = json.loads((ROOT / "twin" / "kinds" / "go_types.json").read_text())
DECIDING, INDIFFERENT = (
    PAGE.split("## PodSpec: what decides nothing", 1)[0],
    PAGE.split("## PodSpec: what decides", 2)[2],
)
FIRST_CELLS = [line.split("|")[1] for line in DECIDING.splitlines() if line.startswith("| ")]


def top_fields(text: str) -> set[str]:
    """First parts of the field names in backquotes."""
    return {re.split(r"[.\[:]", name)[0] for name in re.findall(r"`([A-Za-z][^`]*)`", text)}


def test_every_field_of_pod_spec_is_named() -> None:
    fields = set(TYPES["core/v1.PodSpec"])
    indifferent = top_fields(INDIFFERENT.split("## ", 1)[0])
    deciding = top_fields(" ".join(FIRST_CELLS))
    assert fields - deciding - indifferent == set()
    assert not fields & indifferent & deciding


def test_every_field_that_is_decoded_is_among_those_that_decide() -> None:
    decoded = {field.encode_name for field in msgspec.structs.fields(objects.PodSpec)}
    assert decoded <= top_fields(" ".join(FIRST_CELLS))


@pytest.mark.parametrize(
    ("struct", "go_type"),
    [
        (objects.TopologySpreadConstraint, "core/v1.TopologySpreadConstraint"),
        (cluster_objects.VolumeClaimSpec, "core/v1.PersistentVolumeClaimSpec"),
        (cluster_objects.KubeStorageClass, "storage/v1.StorageClass"),
    ],
)
def test_what_is_decoded_of_other_types_is_named_on_the_page(struct: type[msgspec.Struct], go_type: str) -> None:
    decoded = {field.encode_name for field in msgspec.structs.fields(struct)} - {"metadata"}
    assert decoded <= set(TYPES[go_type])
    named = set(re.findall(r"[A-Za-z]+", " ".join(re.findall(r"`([^`]*)`", PAGE))))
    assert decoded <= named


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`((?:[a-z]+/)?[a-z_]+\.py)`", PAGE))))
def test_files_that_the_page_names_exist(file: str) -> None:
    assert (ROOT / "shared" / "scheduling" / file).is_file()
