"""What a service graph's readings mean, service by service: how much each could answer, how much would come to it.

Both are estimated from what a live mesh measures too, nothing of the twin's truth is read:

- ``per_replica``: requests per second that one ready replica could answer. While requests wait or fail it is what they
  answer now; otherwise what they answer over the share of a full replica's cpu that they use, where that share was
  learned when the service was last full.
- ``demand``: requests per second that would come to it if every caller answered all of its own, from the callers'
  shortfall. A chain's last service sees no surge until those before it have grown; this sees it.

Readings that are missing, negative or not finite keep the last estimate (``seen`` says how old that is).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import isfinite

from shared.autoscaling.observation import ScalingObservation, ServiceObservation

FULL_CPU = 0.85
"""Share of its cpu request that a full replica is taken to use until it was seen full."""
LEAST_CPU = 0.05
LITTLE_CPU = 0.5
"""Share of a full replica's cpu, up to which it is not full by cpu, whatever fails."""
IDLE_CPU = LITTLE_CPU * FULL_CPU
"""The same as a share of the cpu request, of a replica that was never seen full."""
SATURATED = 0.05
"""Share of what comes that waits or fails, from which a service is taken to be full."""
MOST_INFLATION = 5.0
STARTING_S = 30.0
"""So long a replica may take to start. Who is on a node and not Ready, and more than were asked for within that time,
has crashed or hangs."""


@dataclass(slots=True)
class ServiceSignals:
    """One service now. Rates per second; shares 0 to 1; ``per_replica`` and ``demand`` 0: not known yet."""

    replicas: int
    ready: int
    unready: int
    """On a node, not Ready."""
    stuck: int
    pending: int
    minimum: int
    maximum: int
    cores: float
    """Of one replica's request."""
    per_replica: float
    demand: float
    arrivals: float
    trend: float
    """Change of arrivals since the last decision, per arrival."""
    waiting_s: float
    """How long what waits would take to answer."""
    failing: float
    """Share of what comes that fails."""
    utilisation: float
    """Cpu used over cpu requested."""
    latency: float
    """Over its objective."""
    inflation: float
    """Demand over arrivals."""
    missing: bool
    age_s: float

    @property
    def needed(self) -> float:
        """Replicas that the demand takes, exactly; 0 where nothing is known."""
        return self.demand / self.per_replica if self.per_replica > 0 else 0.0


@dataclass(slots=True)
class _Memory:
    per_replica: float = 0.0
    full_cpu: float = FULL_CPU
    arrivals: float = 0.0
    demand: float = 0.0
    replicas: int = 0
    asked: deque[tuple[float, int]] = field(default_factory=deque)
    """When how many replicas more were asked for, or taken away by somebody else, lately."""


class SignalReader:
    """Makes signals of observations; remembers what it has learned about each service of one graph."""

    def __init__(self) -> None:
        self._memory: dict[str, _Memory] = {}

    def reset(self) -> None:
        """Forget everything."""
        self._memory.clear()

    def read(self, seen: ScalingObservation) -> dict[str, ServiceSignals]:
        """The signals of every service, callers before those they call. Call it once per decision."""
        callers: dict[str, list[str]] = {name: [] for name in seen.services}
        for caller, callee in seen.calls:
            if caller in callers and callee in callers:
                callers[callee].append(caller)
        found: dict[str, ServiceSignals] = {}
        for name in _callers_first(callers):
            above = [found[caller] for caller in callers[name] if caller in found]
            memory = self._memory.setdefault(name, _Memory())
            found[name] = _signals(seen, seen.services[name], memory, above)
        return found


def _signals(
    seen: ScalingObservation, one: ServiceObservation, memory: _Memory, above: list[ServiceSignals]
) -> ServiceSignals:
    arrivals, served = _number(one.arrivals), _number(one.served)
    failed, queue, cpu = _number(one.failed) or 0.0, _number(one.queue) or 0.0, _number(one.usage.get("cpu"))
    missing = arrivals is None or served is None
    asked = one.requests.get("cpu", 0.0)
    utilisation = cpu / asked if cpu is not None and asked > 0 else 0.0
    full = False
    if arrivals is not None and served is not None:
        full = failed + queue > SATURATED * max(arrivals, 1e-9) and arrivals > 0
        _learn(memory, served / one.ready if one.ready else 0.0, utilisation, full=full)
    inflation = 1.0
    for caller in above:
        if caller.arrivals > 0 and caller.per_replica > 0:
            able = min(caller.arrivals, max(caller.ready, 0.25) * caller.per_replica)
            inflation = max(inflation, min(caller.demand / max(able, 1e-9), MOST_INFLATION))
    before = memory.arrivals
    if arrivals is not None:
        memory.demand, memory.arrivals = arrivals * inflation, arrivals
    unready = one.starting
    lately = memory.asked
    if one.replicas > memory.replicas and memory.replicas:
        lately.append((seen.now, one.replicas - memory.replicas))
    if one.pending:
        lately.append((seen.now, one.pending))
    while lately and lately[0][0] < seen.now - STARTING_S:
        lately.popleft()
    memory.replicas = one.replicas
    stuck = max(unready - sum(count for _, count in lately), 0)
    objective = seen.latency_objective_s
    latency = _number(one.latency_s)
    able = max(one.ready, 1) * memory.per_replica
    return ServiceSignals(
        replicas=one.replicas,
        ready=one.ready,
        unready=unready,
        stuck=stuck,
        pending=one.pending,
        minimum=one.bounds.minimum,
        maximum=one.bounds.maximum,
        cores=asked,
        per_replica=memory.per_replica,
        demand=memory.demand,
        arrivals=memory.arrivals,
        trend=(memory.arrivals - before) / before if before > 0 else 0.0,
        waiting_s=queue / able if able > 0 else 0.0,
        failing=min(failed / arrivals, 1.0) if arrivals else 0.0,
        utilisation=utilisation,
        latency=latency / objective if latency is not None and objective else 0.0,
        inflation=inflation,
        missing=missing,
        age_s=one.age_s,
    )


def fails_at_little_cpu(one: ServiceObservation) -> bool:
    """Whether it fails, or lets wait, what comes, at so little cpu that load by cpu cannot be why. Then no share of cpu
    tells what a replica could answer, and an estimate that went by it is too high."""
    arrivals, cpu, asked = _number(one.arrivals), _number(one.usage.get("cpu")), one.requests.get("cpu", 0.0)
    if not arrivals or cpu is None or asked <= 0:
        return False
    late = (_number(one.failed) or 0.0) + (_number(one.queue) or 0.0)
    return late > SATURATED * arrivals and cpu / asked <= IDLE_CPU


def _learn(memory: _Memory, each: float, utilisation: float, *, full: bool) -> None:
    """What one replica could answer, from what each answers now (``each``, per second)."""
    if each <= 0:
        return
    if full and utilisation > LITTLE_CPU * memory.full_cpu:
        memory.full_cpu += 0.3 * (min(utilisation, 1.5) - memory.full_cpu)
        estimate = each
    elif full:
        return  # it fails for another reason than load
    else:
        estimate = each * max(memory.full_cpu / max(utilisation, LEAST_CPU), 1.0)
    before = memory.per_replica or estimate
    memory.per_replica = before + 0.4 * (estimate - before)


def _number(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) and value >= 0 else None


def _callers_first(callers: dict[str, list[str]]) -> list[str]:
    """The services in such an order; those on a loop, which nobody should have let in, in the order given."""
    order: list[str] = []
    left = list(callers)
    while left:
        ready = [name for name in left if not any(caller in left for caller in callers[name])] or left[:1]
        order += ready
        left = [name for name in left if name not in ready]
    return order
