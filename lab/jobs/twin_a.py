"""Twin A: a cluster of DL2's shape (Peng et al., TPDS 2021): parameter servers, time slots, and a best number of
workers.

DL2's measured table, its trace and its simulator's code are not to be had under a licence, so this twin is synthetic:

- **Cluster**: the smaller of DL2's settings: 48 nodes of 8 cores and 8 GPU slots; a worker takes 2 cores and 4 slots,
  a parameter server 2 cores. So a node holds 2 workers, and 4 workers and servers together.
- **Speeds**: Optimus' formula (``lab.worlds.training.servers``). What DL2 tells of its table is kept: resnet-50 is
  fastest with 2 workers (67.8 samples/s at 20 servers, 62.1 with one worker, 33.0 with 12), dssm with 5, vgg-16 with
  one. The other five lie between these.
- **Jobs**: their time, run as their users ask for (2, 4 or 8 workers, a server each), is lognormal with the mean of
  DL2's trace, 147 minutes (median 90 minutes, 10 minutes to 24 hours). They come at the beginning of a slot.
- **Arrivals**: Poisson, with a day's rhythm. Their rate was chosen so that Optimus with oracle speed is as much below
  DRF as DL2 reports (32 %), on seeds 100-109.

Even if every job had its best numbers from the moment it came, the mean would be 48 % below DRF's; in the room that
there is no scheduler is 39 % below it (``lab.bounds.completion_bound``). Slots are 20
minutes; changes between slots cost nothing, as in DL2's simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from lab.jobs.clusters import JobsCluster
from lab.jobs.playing import PlayedRun, play_jobs
from lab.worlds.training.convergence import Convergence, MeasuredRun
from lab.worlds.training.models import TrainingModel
from lab.worlds.training.servers import ServerTimes
from lab.worlds.training.simulation import SimulatedTrainingJob, SimulationSettings
from lab.worlds.training.step_times import StepTimes
from shared.jobs.observation import NodeObservation, Policy
from shared.jobs.registry import make

NAME = "twin-a"
SLOT_S = 1200.0
HOUR_S = 3600.0
NODES, GPUS_PER_NODE, PLACES_PER_NODE = 48, 2, 4
JOBS = 120
GAP_S = 225.0
"""Mean time between arrivals: see above."""
RHYTHM, DAY_S = 0.5, 24 * HOUR_S
MEDIAN_S, SPREAD = 90 * 60.0, 0.99
"""Of a job's time as its user runs it: exp(0.99^2 / 2) times the median is 147 minutes."""
SHORTEST_S, LONGEST_S = 600.0, 24 * HOUR_S
LONGEST_RUN_S = 7 * DAY_S
EPOCH_S = 240.0
"""About an epoch's, at a model's best."""
REQUESTS = (2, 4, 8)
JOBS_STREAM = 17


@dataclass(frozen=True)
class ModelKind:
    """A model: its global batch and step times."""

    batch: int
    times: ServerTimes

    def rate(self, workers: int, servers: int) -> float:
        """Samples per second; 0.0: it cannot run so."""
        step_s = self.times.step_s(workers, servers)
        return self.batch / step_s if step_s else 0.0

    @cached_property
    def best(self) -> float:
        """Samples per second at its best numbers of workers and servers."""
        times = self.times
        pairs = ((w, u) for w in range(1, times.most_workers + 1) for u in range(1, times.most_servers + 1))
        return max(self.rate(w, u) for w, u in pairs)


def _kind(batch: int, compute: float, fixed: float, push: float, worker: float, server: float) -> ModelKind:
    times = ServerTimes(compute_s=compute, fixed_s=fixed, push_s=push, worker_s=worker, server_s=server)
    return ModelKind(batch, times)


KINDS: Mapping[str, ModelKind] = {
    "resnet-50": _kind(32, 0.2025, 0.2340, 0.40, 0.0382, 0.0010),
    "vgg-16": _kind(32, 0.1500, 0.3000, 1.20, 0.1200, 0.0020),
    "dssm": _kind(256, 0.3600, 0.0400, 0.05, 0.0120, 0.0005),
    "resnext-110": _kind(64, 0.9000, 0.1000, 0.60, 0.0700, 0.0010),
    "inception-bn": _kind(64, 0.8000, 0.1500, 0.50, 0.0600, 0.0010),
    "seq2seq": _kind(128, 0.5000, 0.1200, 0.80, 0.0850, 0.0020),
    "ctc": _kind(64, 1.6000, 0.1000, 0.60, 0.0700, 0.0010),
    "wlm": _kind(96, 0.2500, 0.0800, 1.00, 0.1000, 0.0020),
}
"""Those that are trained on."""
UNSEEN: Mapping[str, ModelKind] = {
    "bert-small": _kind(64, 1.2000, 0.1500, 0.60, 0.0700, 0.0010),
    "gan": _kind(64, 0.3000, 0.2000, 0.90, 0.0600, 0.0010),
}
"""Those that no policy is trained on."""


def cluster(nodes: int = NODES) -> JobsCluster:
    """So many nodes of Twin A."""
    width = len(str(nodes))
    return JobsCluster(
        tuple(
            NodeObservation(name=f"node-{at:0{width}d}", gpus=GPUS_PER_NODE, places=PLACES_PER_NODE)
            for at in range(nodes)
        )
    )


def settings(**changes: object) -> SimulationSettings:
    """Slots of 20 minutes, a week at most, and what else is given."""
    return SimulationSettings(**{"round_s": SLOT_S, "most_s": LONGEST_RUN_S, **changes})  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def model_of(name: str, epochs: int, compute: float = 1.0) -> TrainingModel:
    """A model that is done after so many epochs; each step is worth one. ``compute``: see ``draw``."""
    kind = {**KINDS, **UNSEEN}[name]
    steps = max(round(EPOCH_S * kind.best / kind.batch), 1)
    run = MeasuredRun(tuple(float(steps * (epoch + 1)) for epoch in range(epochs)), (1.0,) * epochs, (0.0,) * epochs)
    return TrainingModel(
        name=name,
        times=StepTimes({}, {}),
        convergence=Convergence.of([(kind.batch, run)]),
        local_range=(1, kind.batch),
        served=replace(kind.times, compute_s=kind.times.compute_s * compute),
    )


def draw(
    seed: int, *, jobs: int = JOBS, gap_s: float = GAP_S, unseen: bool = False, compute: float = 1.0
) -> list[SimulatedTrainingJob]:
    """A workload. ``unseen``: half of the jobs, at random, train models that no policy has seen. ``compute``: the time
    that a GPU needs for the same work, beside Twin A's; all else takes as long, so other numbers of workers are best.
    """
    rng = np.random.default_rng([seed, JOBS_STREAM])
    at, found = 0.0, []
    for number in range(jobs):
        rate = 1.0 + RHYTHM * np.sin(2 * np.pi * at / DAY_S)
        at += float(rng.exponential(gap_s)) / rate
        names = list(UNSEEN if unseen and rng.random() < 0.5 else KINDS)
        name = names[int(rng.integers(len(names)))]
        time_s = float(np.clip(MEDIAN_S * np.exp(SPREAD * rng.standard_normal()), SHORTEST_S, LONGEST_S))
        requested = REQUESTS[int(rng.integers(len(REQUESTS)))]
        kind = {**KINDS, **UNSEEN}[name]
        epochs = time_s / EPOCH_S * kind.rate(requested, requested) / kind.best
        model = model_of(name, max(round(epochs), 1), compute)
        batch = model.convergence.initial
        found.append(
            SimulatedTrainingJob(
                name=f"{name}-{number}",
                submitted=at // SLOT_S * SLOT_S,
                model=model,
                requested=requested,
                batch=batch,
                maximum=model.most_workers(batch),
                restart_s=0.0,
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinOrder:
    """One run on Twin A; it goes to another process. ``policy``: one that is made already, or its name."""

    policy: str | Policy
    seed: int
    nodes: int = NODES
    jobs: int = JOBS
    gap_s: float = GAP_S
    unseen: bool = False
    speed_error: float = 0.0
    lag_rounds: int = 0
    clock: Callable[[], float] | None = None


def play_twin(order: TwinOrder) -> PlayedRun:
    """Carry an order out."""
    policy = make(order.policy) if isinstance(order.policy, str) else order.policy
    workload = draw(order.seed, jobs=order.jobs, gap_s=order.gap_s, unseen=order.unseen)
    chosen = settings(speed_error=order.speed_error, lag_rounds=order.lag_rounds)
    return play_jobs(workload, cluster(order.nodes), policy, order.seed, chosen, clock=order.clock)
