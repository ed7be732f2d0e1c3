"""How many writes an API server has taken, by verb and kind: from the twin's audit file, or a server's own metrics.

Both count what the server did, whoever asked; a bench takes two looks and knows what it wrote itself between them.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bench.stand.cluster import BenchCluster
from bench.stand.figures import spread

FLUSHED_S = 0.5
"""The twin flushes its audit file every 0.2 s."""
OWN = frozenset({"create Pod", "delete Pod", "POST pods", "DELETE pods"})
"""What the benches themselves do to pods."""
STATUS_CHANGES = ("patch Pod", "PATCH pods/status")
"""What a change of a pod's status is in the audit file and in the metrics; schedulers make such, too."""
_REQUEST = re.compile(r"apiserver_request_total\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITING = ("POST", "PUT", "PATCH", "APPLY", "DELETE")


class WritesCounter(Protocol):
    """Who counts."""

    async def so_far(self) -> Counter[str]:
        """By ``VERB WHAT``, since the server was started."""
        ...


class _Line(msgspec.Struct):
    verb: str
    kind: str


class AuditWrites:
    """Of a twin's audit file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self._rest = b""
        self._counts: Counter[str] = Counter()
        self._decoder = msgspec.json.Decoder(_Line)

    async def so_far(self) -> Counter[str]:
        """See ``WritesCounter``."""
        await asyncio.sleep(FLUSHED_S)
        with self._file.open("rb") as lines:
            lines.seek(self._read)
            fresh = lines.read()
        self._read += len(fresh)
        *whole, self._rest = (self._rest + fresh).split(b"\n")
        for line in whole:
            found = self._decoder.decode(line)
            self._counts[f"{found.verb} {found.kind}"] += 1
        return self._counts.copy()


class MetricsWrites:
    """Of an API server's ``apiserver_request_total``: requests, those that were refused too."""

    def __init__(self, cluster: BenchCluster) -> None:
        self._cluster = cluster
        self._said = False

    async def so_far(self) -> Counter[str]:
        """See ``WritesCounter``; nothing, and one line of it, where the server does not show them to this user."""
        text = await self._cluster.metrics()
        if "apiserver_request_total" not in text and not self._said:
            self._said = True
            why = "writes are not counted (0); let the user of the kubeconfig get that path"
            print(f"bench: the server shows no apiserver_request_total at /metrics: {why}", file=sys.stderr)
        return requests_in(text)


def requests_in(text: str) -> Counter[str]:
    """Writing requests by verb and resource, of an API server's metrics."""
    counts: Counter[str] = Counter()
    for match in _REQUEST.finditer(text):
        labels = dict(_LABEL.findall(match[1]))
        if labels.get("verb") in _WRITING and not labels.get("dry_run"):
            what = "/".join(part for part in (labels.get("resource"), labels.get("subresource")) if part)
            counts[f"{labels['verb']} {what}"] += round(float(match[2]))
    return counts


def per_pod(before: Counter[str], after: Counter[str], pods: int) -> dict[str, float]:
    """Writes between two looks, each over ``pods``; without what the bench itself did to pods."""
    return {name: round(count / max(1, pods), 4) for name, count in sorted((after - before).items()) if name not in OWN}


def changed_by_the_bench(changes: int) -> Counter[str]:
    """To be added to the first look: so many changes of pods' status were the bench's own."""
    return Counter(dict.fromkeys(STATUS_CHANGES, changes))


def write_column(runs: Sequence[Mapping[str, Any]]) -> str:
    """``writes_of_pods_per_pod`` of runs; a pod is bound by one write at least, so with none they were not told."""
    counted = [one["writes_of_pods_per_pod"] for one in runs if one["writes_per_pod"]]
    return spread(counted, 3) if counted else "not told"


def of_pods(writes: Mapping[str, float]) -> float:
    """Writes of pods among them: 1 per pod where each was bound by one call and by nothing else."""
    return round(sum(count for name, count in writes.items() if name.split()[1].split("/")[0] in ("Pod", "pods")), 4)
