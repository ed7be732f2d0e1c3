"""Makes traces of openb's form: a cluster with GPUs, and pods that fill most of it. Same arguments, same trace.

Why: the public trace is large and not ours to ship; a made one lets everybody run what reads traces. Shapes and shares
are round figures of our own, like a cluster for training and inference: whole devices, shares of one, several, none.
Pure: the randomness comes in. It is no measured workload: figures on it say nothing about a real cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from lab.traces.cells import MILLI_PER_DEVICE, NODE_COLUMNS, POD_COLUMNS
from shared.errors import ConfigError

MOST_NODES, MOST_PODS = 10_000, 200_000

DRAWS = 16
"""Tries per pod: once little is left, most shapes are too large."""
FILL = 0.85
"""Share of every resource that the pods ask for at most, so that nearly all of them find a place."""


T = TypeVar("T")


class TraceDraws(Protocol):
    """What of ``random.Random`` is used here."""

    def choice(self, among: Sequence[T], /) -> T:
        """One of them."""
        ...

    def choices(self, among: Sequence[T], weights: Sequence[float], *, k: int = 1) -> list[T]:
        """``k`` of them, by weight, with repetition."""
        ...


class _NodeShape(NamedTuple):
    weight: int
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


class _PodShape(NamedTuple):
    weight: int
    cpu_milli: tuple[int, ...]
    memory_mib: tuple[int, ...]
    gpus: int
    gpu_milli: tuple[int, ...]


NODE_SHAPES = (
    _NodeShape(4, 64_000, 262_144, 4, "T4"),
    _NodeShape(3, 96_000, 393_216, 8, "A10"),
    _NodeShape(2, 128_000, 786_432, 8, "A100"),
    _NodeShape(2, 64_000, 262_144, 0, ""),
)
POD_SHAPES = (
    _PodShape(40, (1000, 2000, 4000), (2048, 4096, 8192), 1, (100, 200, 250, 300, 500, 700)),
    _PodShape(25, (4000, 6000, 8000), (16_384, 32_768), 1, (MILLI_PER_DEVICE,)),
    _PodShape(8, (8000, 16_000), (32_768, 65_536), 2, (MILLI_PER_DEVICE,)),
    _PodShape(3, (16_000, 32_000), (65_536, 131_072), 4, (MILLI_PER_DEVICE,)),
    _PodShape(24, (500, 1000, 2000, 4000), (1024, 2048, 8192), 0, (0,)),
)
"""Weight, then the choices of a pod: milli-cores, MiB, devices, thousandths of each."""


def make_trace(rng: TraceDraws, *, nodes: int, pods: int) -> tuple[str, str]:
    """(node list, pod list) as CSV. Fewer pods than asked for where more would fill the nodes beyond ``FILL``.

    ``ConfigError``: more than anybody would read.
    """
    for flag, count, most in (("--nodes", nodes, MOST_NODES), ("--pods", pods, MOST_PODS)):
        if not 1 <= count <= most:
            raise ConfigError(f"{flag}: {count} is not 1 to {most}")
    shapes = rng.choices(NODE_SHAPES, [shape.weight for shape in NODE_SHAPES], k=nodes)
    if not any(shape.gpus for shape in shapes):
        shapes[0] = NODE_SHAPES[0]  # openb's readers want a device at least
    room = [
        int(FILL * sum(amounts))
        for amounts in zip(*((s.cpu_milli, s.memory_mib, s.gpus * MILLI_PER_DEVICE) for s in shapes), strict=True)
    ]
    node_rows = [
        (f"node-{at:04d}", shape.cpu_milli, shape.memory_mib, shape.gpus, shape.model)
        for at, shape in enumerate(shapes)
    ]
    pod_rows: list[tuple[str | int, ...]] = []
    for _ in range(DRAWS * pods):
        if len(pod_rows) == pods:
            break
        (shape,) = rng.choices(POD_SHAPES, [shape.weight for shape in POD_SHAPES])
        cpu, memory, milli = rng.choice(shape.cpu_milli), rng.choice(shape.memory_mib), rng.choice(shape.gpu_milli)
        asked = (cpu, memory, shape.gpus * milli)
        if any(wanted > left for wanted, left in zip(asked, room, strict=True)):
            continue
        room = [left - wanted for wanted, left in zip(asked, room, strict=True)]
        pod_rows.append((f"pod-{len(pod_rows):05d}", cpu, memory, shape.gpus, milli))
    return _csv(NODE_COLUMNS, node_rows), _csv(POD_COLUMNS, pod_rows)


def _csv(columns: tuple[str, ...], rows: list[tuple[str | int, ...]] | list[tuple[str, int, int, int, str]]) -> str:
    return "".join(f"{','.join(map(str, row))}\n" for row in (columns, *rows))
