"""What came of a day that was played."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.mesh.tidal.waits import Which


@dataclass(slots=True)
class DaySeries:
    """What was so at every step of the day: shares of the pool's cores, of its GPUs, and of requests."""

    hours: list[float] = field(default_factory=list)
    online: list[float] = field(default_factory=list)
    offline: list[float] = field(default_factory=list)
    gpus: list[float] = field(default_factory=list)
    demanded: list[float] = field(default_factory=list)
    violated: list[float] = field(default_factory=list)


@dataclass(slots=True)
class PlayedDay:
    """A day that was played. ``done`` and ``lost``: seconds of workers; ``for_use``, ``for_jobs``: of the evictions
    those because less was lent, and those for the sake of another job; ``waits``: of each online pod (``Waits``);
    ``gave_way``: seconds from when a node lent less than was held there until enough had been asked to leave, or the
    end."""

    series: DaySeries = field(default_factory=DaySeries)
    done: float = 0.0
    lost: float = 0.0
    evictions: int = 0
    finished: int = 0
    broken: int = 0
    for_use: int = 0
    for_jobs: int = 0
    waits: dict[Which, float] = field(default_factory=dict)
    gave_way: list[float] = field(default_factory=list)
