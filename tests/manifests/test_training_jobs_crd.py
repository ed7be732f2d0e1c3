"""The definition of TrainingJobs: what is written fits it, and what kubectl shows is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.kube.training.training_status import status_patch
from shared.model.controllers.training_job import JobCondition, JobReport, JobStatus, TrainingJob

CRD = Path(__file__).parents[2] / "k8s/components/jobs/training-jobs-crd.yaml"


def version() -> dict[str, Any]:
    (found,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    return dict(found)


def field_at(path: str) -> dict[str, Any] | None:
    """The schema at a JSONPath of a column; None: there is no such field."""
    schema = version()["schema"]["openAPIV3Schema"]
    for part in re.sub(r"\[\?\(.*?\)\]", ".items", path).strip(".").split("."):
        schema = schema.get("items") if part == "items" else schema.get("properties", {}).get(part)
        if schema is None:
            return None
    return dict(schema)


@pytest.mark.parametrize("column", version()["additionalPrinterColumns"], ids=lambda column: column["name"])
def test_each_column_shows_a_field_that_is_there(column: dict[str, Any]):
    if column["jsonPath"].startswith(".metadata."):
        assert column["type"] == "date"
        return
    field = field_at(column["jsonPath"])
    assert field is not None
    assert field["type"] == column["type"]


def test_the_columns_say_where_a_job_is_and_why():
    names = [column["name"] for column in version()["additionalPrinterColumns"] if not column.get("priority")]
    assert names == ["Phase", "Workers", "Min", "Max", "Progress", "Restarts", "Failures", "Reason", "Age"]


def test_all_that_is_written_into_a_status_is_in_the_definition():
    """What is not is pruned by the API server: it would be forgotten with the leader."""
    job = TrainingJob(namespace="n", name="a", uid="u", resource_version="1")
    status = JobStatus(report=JobReport(steps=1, at=1.0), conditions=(JobCondition("Ready", "True", "Running"),))
    written = status_patch(job, status, "2026-11-23T00:00:00Z")["status"]
    schema = version()["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert written.keys() <= schema.keys()
    assert written["report"].keys() <= schema["report"]["properties"].keys()
    assert written["conditions"][0].keys() <= schema["conditions"]["items"]["properties"].keys()
