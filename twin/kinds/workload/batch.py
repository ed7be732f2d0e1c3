"""Jobs and CronJobs: generated selectors and labels, defaults, what may change.

Sources: ``pkg/apis/batch/v1/defaults.go``, ``pkg/registry/batch/job/strategy.go``, ``pkg/apis/batch/validation``.
"""

from __future__ import annotations

import re
from typing import Any

from twin.kinds.pod.defaults import default_pod_spec
from twin.kinds.pod.validation import check_template
from twin.kinds.pod.warnings import template_warnings
from twin.kinds.rules.names import check_label_selector
from twin.kinds.rules.printing import NONE, UNKNOWN, age_of, columns, human_duration, object_age, seconds_of
from twin.kinds.workload.templates import WorkloadStrategy, check_counts, container_cells, selector_cell
from twin.registry.status import FieldError, invalid, not_supported, required
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

_UID_LABEL, _NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_OLD_LABELS = (("controller-uid", _UID_LABEL), ("job-name", _NAME_LABEL))
_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_SCHEDULING_DIRECTIVES = ("affinity", "nodeSelector", "tolerations", "schedulingGates")
_ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
_SCHEDULE = re.compile(
    r"(@(yearly|annually|monthly|weekly|daily|midnight|hourly|every \S+))|(\S+(\s+\S+){4})", re.ASCII
)


class JobStrategy(WorkloadStrategy):
    """batch/v1 Job."""

    info = KindInfo("batch", "v1", "Job", "jobs", "job", True, categories=("all",))
    go_type = "batch/v1.Job"
    default_propagation = "Orphan"
    supported_fields = frozenset(("metadata.name", "metadata.namespace", "status.successful"))
    table_columns = columns(
        "Name", "Status", "Completions", "Duration", "Age", wide=("Containers", "Images", "Selector")
    )

    def default(self, obj: Json) -> None:
        super().default(obj)
        spec = obj["spec"]
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = spec["parallelism"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
        self._label(obj)

    def _label(self, obj: Json) -> None:
        labels = (obj["spec"]["template"].get("metadata") or {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        """generateSelector: the Job's uid selects its pods, unless the user takes that on himself."""
        spec = obj["spec"]
        if not spec["manualSelector"]:
            meta = spec["template"].setdefault("metadata", {})
            own = {_UID_LABEL: obj["metadata"]["uid"], _NAME_LABEL: obj["metadata"].get("name", "")}
            for old, new in _OLD_LABELS:
                own[old] = own[new]
            meta["labels"] = {**(meta.get("labels") or {}), **own}
            selector = spec.get("selector") or {}
            if not selector.get("matchLabels"):
                spec["selector"] = {**selector, "matchLabels": {_UID_LABEL: own[_UID_LABEL]}}
        self._label(obj)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found = check_job_spec(spec, "spec")
        if spec.get("selector") is None:
            found.append(required("spec.selector"))
        else:
            found += check_label_selector(spec["selector"], "spec.selector")
        if not spec["manualSelector"] and not ctx.subresource:
            wanted = {"matchLabels": {_UID_LABEL: obj["metadata"].get("uid")}}
            if spec.get("selector") not in (wanted, {"matchLabels": {"controller-uid": obj["metadata"].get("uid")}}):
                found.append(invalid("spec.selector", spec.get("selector"), "`selector` not auto-generated"))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        new, before = obj["spec"], old["spec"]
        found = check_job_spec(new, "spec")
        if new.get("completionMode") != "Indexed" and new.get("completions") != before.get("completions"):
            found.append(invalid("spec.completions", new.get("completions"), "field is immutable"))
        found += self.check_selector_kept(obj, old)
        template, kept = new["template"], before["template"]
        if before.get("suspend") and not old["status"].get("startTime"):
            template = _without_directives(template)
            kept = _without_directives(kept)
        if template != kept:
            found.append(invalid("spec.template", new["template"], "field is immutable"))
        found += [
            invalid(f"spec.{name}", new.get(name), "field is immutable")
            for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
            if new.get(name) != before.get(name)
        ]
        return found

    def grace_period_for_delete(self, obj: Json, options: Json, ctx: RequestContext) -> int | None:
        """No grace; but who does not say what becomes of the pods is told that they stay."""
        if options.get("propagationPolicy") is None and options.get("orphanDependents") is None:
            ctx.warnings.append(_ORPHANS)
        return None

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {"status.successful": str(obj["status"].get("succeeded", 0))}

    def table_cells(self, obj: Json, now_s: float) -> list[Any]:
        spec, status = obj["spec"], obj["status"]
        wanted, done = spec.get("completions"), status.get("succeeded", 0)
        if wanted is None:
            parallel = spec.get("parallelism", 0)
            text = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
        else:
            text = f"{done}/{wanted}"
        duration = ""
        if status.get("startTime"):
            end = seconds_of(status["completionTime"]) if status.get("completionTime") else now_s
            duration = human_duration(end - seconds_of(status["startTime"]))
        return [
            obj["metadata"]["name"],
            _job_state(spec, status, obj["metadata"]),
            text,
            duration,
            object_age(obj, now_s),
            *container_cells(spec.get("template")),
            selector_cell(spec.get("selector")),
        ]


def _without_directives(template: Json) -> Json:
    """A suspended Job that never ran may still be told where to run."""
    spec = {key: value for key, value in template["spec"].items() if key not in _SCHEDULING_DIRECTIVES}
    meta = {k: v for k, v in (template.get("metadata") or {}).items() if k not in ("labels", "annotations")}
    return {**template, "spec": spec, "metadata": meta}


def _job_state(spec: Json, status: Json, meta: Json) -> str:
    true = {c["type"] for c in status.get("conditions") or () if c.get("status") == "True"}
    for condition, text in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition in true:
            return text
    if meta.get("deletionTimestamp"):
        return "Terminating"
    for condition, text in (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget")):
        if condition in true:
            return text
    return "SuccessCriteriaMet" if "SuccessCriteriaMet" in true else "Running"


def check_job_spec(spec: Json, field: str) -> list[FieldError]:
    """validateJobSpec, of a Job or of a CronJob's template."""
    found = check_counts(spec, field, *_COUNTS)
    mode = spec.get("completionMode")
    if mode not in (None, "NonIndexed", "Indexed"):
        found.append(not_supported(f"{field}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed" and spec.get("completions") is None:
        found.append(required(f"{field}.completions", "when completion mode is Indexed"))
    template = spec.get("template") or {}
    found += check_template(template, f"{field}.template")
    policy = (template.get("spec") or {}).get("restartPolicy", "")
    where = f"{field}.template.spec.restartPolicy"
    if policy in ("", "Always"):
        found.append(required(where, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        found.append(not_supported(where, policy, ("OnFailure", "Never")))
    return found


class CronJobStrategy(WorkloadStrategy):
    """batch/v1 CronJob."""

    info = KindInfo("batch", "v1", "CronJob", "cronjobs", "cronjob", True, short_names=("cj",), categories=("all",))
    go_type = "batch/v1.CronJob"
    table_columns = columns(
        "Name", "Schedule", "Timezone", "Suspend:boolean", "Active:integer", "Last Schedule", "Age",
        wide=("Containers", "Images", "Selector"),
    )  # fmt: skip

    def default(self, obj: Json) -> None:
        spec = obj["spec"]
        if not spec.get("concurrencyPolicy"):
            spec["concurrencyPolicy"] = "Allow"
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        default_pod_spec(spec["jobTemplate"]["spec"]["template"]["spec"])

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found: list[FieldError] = []
        if not spec.get("schedule"):
            found.append(required("spec.schedule"))
        elif not _SCHEDULE.fullmatch(spec["schedule"].strip()):
            text = f"expected exactly 5 fields, found {len(spec['schedule'].split())}: {spec['schedule'].split()}"
            found.append(invalid("spec.schedule", spec["schedule"], text))
        policies = ("Allow", "Forbid", "Replace")
        if spec["concurrencyPolicy"] not in policies:
            found.append(not_supported("spec.concurrencyPolicy", spec["concurrencyPolicy"], policies))
        names = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
        found += check_counts(spec, "spec", *names)
        if len(obj["metadata"].get("name") or "") > 52:
            found.append(invalid("metadata.name", obj["metadata"]["name"], "must be no more than 52 characters"))
        return found + check_job_spec(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")

    def warnings(self, obj: Json, old: Json | None, ctx: RequestContext) -> list[str]:
        template = obj["spec"]["jobTemplate"]["spec"]["template"]
        if old is not None and old["spec"]["jobTemplate"]["spec"]["template"] == template:
            return []
        prefix = "spec.jobTemplate.spec.template."
        return list(template_warnings(template["spec"], template.get("metadata") or {}, prefix))

    def table_cells(self, obj: Json, now_s: float) -> list[Any]:
        spec, status = obj["spec"], obj["status"]
        template = spec["jobTemplate"]["spec"]
        last = status.get("lastScheduleTime")
        return [
            obj["metadata"]["name"],
            spec.get("schedule", ""),
            spec.get("timeZone") or NONE,
            bool(spec.get("suspend")),
            len(status.get("active") or ()),
            age_of(last, now_s) if last else NONE,
            object_age(obj, now_s) or UNKNOWN,
            *container_cells(template.get("template")),
            selector_cell(template.get("selector")),
        ]
