"""``make audit``: bandit over our code, pip-audit over what we install. A high finding fails, and so does not knowing.

pip-audit reports a dependency that it could not look up as skipped and still ends with 0: without its database it
would call everything clean. Here that is a result of its own: 3, *not audited*.

Exit codes: 0 clean, 1 a finding, 3 no vulnerability data could be reached. A finding is let pass by an entry in
``pyproject.toml`` that gives its id, a reason and the date until which it holds::

    [[tool.conclave.audit]]
    id = "GHSA-..."
    reason = "we do not call what is vulnerable"
    until = 2027-01-31
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CODE = ("services", "shared", "lab", "twin", "compose", "k8s", "images")
LOCKS = ("requirements-dev.lock", "images/learner.lock")
"""Between them they name every package that is installed anywhere; torch comes from its own index."""

CLEAN, FOUND, NOT_AUDITED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Excuse:
    """A finding that is let pass until a date, both included."""

    id: str
    reason: str
    until: dt.date


def excuses_in(pyproject: dict[str, Any]) -> list[Excuse]:
    """Those of ``[[tool.conclave.audit]]``. ``ValueError``: one without an id, a reason or a date."""
    found = []
    for entry in pyproject.get("tool", {}).get("conclave", {}).get("audit", ()):
        if not entry.get("id") or not entry.get("reason") or not isinstance(entry.get("until"), dt.date):
            raise ValueError(f"tool.conclave.audit: {entry}: give id, reason and until (a date)")
        found.append(Excuse(entry["id"], entry["reason"], entry["until"]))
    return found


def excused(ids: Iterable[str], excuses: Sequence[Excuse], today: dt.date) -> bool:
    """Whether one of a finding's names is excused today."""
    names = set(ids)
    return any(excuse.id in names and today <= excuse.until for excuse in excuses)


def judge_code(report: dict[str, Any], excuses: Sequence[Excuse], today: dt.date) -> tuple[int, list[str]]:
    """Of bandit's JSON: a finding of severity HIGH fails, others are counted."""
    lines, code, lesser = [], CLEAN, 0
    if report.get("errors"):
        return FOUND, [f"bandit: could not read {error['filename']}: {error['reason']}" for error in report["errors"]]
    for result in report["results"]:
        if result["issue_severity"] != "HIGH":
            lesser += 1
        elif not excused((result["test_id"],), excuses, today):
            code = FOUND
            lines.append(f"bandit: {result['filename']}:{result['line_number']}: {result['issue_text']}")
    scanned = report["metrics"]["_totals"]["loc"]
    lines.append(f"bandit: {scanned} lines, {len(lines)} high, {lesser} lesser findings")
    return (code, lines) if scanned else (FOUND, ["bandit: nothing was scanned"])


def judge_packages(report: dict[str, Any], excuses: Sequence[Excuse], today: dt.date) -> tuple[int, list[str]]:
    """Of pip-audit's JSON: any known vulnerability fails; a package that was skipped was not audited."""
    lines, skipped, known = [], [], 0
    for package in report["dependencies"]:
        if "skip_reason" in package:
            skipped.append(package["name"])
            continue
        known += 1
        for vulnerability in package["vulns"]:
            if not excused((vulnerability["id"], *vulnerability.get("aliases", ())), excuses, today):
                fixed = ", ".join(vulnerability.get("fix_versions", ())) or "no version yet"
                lines.append(
                    f"pip-audit: {package['name']} {package['version']}: {vulnerability['id']}, fixed in {fixed}"
                )
    code = FOUND if lines else NOT_AUDITED if skipped or not known else CLEAN
    lines.append(f"pip-audit: {known} packages, {len(lines)} findings")
    if skipped:
        lines.append(
            f"pip-audit: {len(skipped)} NOT AUDITED (no vulnerability data reachable): {', '.join(skipped[:8])} ..."
        )
    return code, lines


def main() -> int:
    """The exit code: a finding before not knowing."""
    excuses = excuses_in(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    today = dt.datetime.now(dt.UTC).date()
    for excuse in excuses:
        if today > excuse.until:
            print(f"tool.conclave.audit: {excuse.id} was excused until {excuse.until}; mend it or give a new date")
    code, lines = judge_code(_run("bandit", "--quiet", "--format", "json", "--recursive", *CODE), excuses, today)
    locks = [word for lock in LOCKS for word in ("--requirement", lock)]
    audit = _run(
        "pip_audit", "--format", "json", "--progress-spinner", "off", "--disable-pip", "--require-hashes", *locks
    )
    packages, more = judge_packages(audit, excuses, today)
    print("\n".join([*lines, *more]))
    return FOUND if FOUND in (code, packages) else max(code, packages)


def _run(module: str, *arguments: str) -> dict[str, Any]:
    """The JSON that a tool prints; ``SystemExit`` in one line where it prints none."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise SystemExit(f"{module}: no report ({last[:300]}); is it installed, and its database reachable?") from None
    return report


if __name__ == "__main__":
    sys.exit(main())
