"""Settings of an agent. The machinery is in ``shared.runtime.process.settings``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from shared.hostport import split_host_port
from shared.model.gpu_shares import DEFAULT_TEXT as GPU_SHARES
from shared.model.load import DEFAULT_TEXT as LOAD_PARTS
from shared.policy.domain import PLACEMENT
from shared.policy.registry import make_policy
from shared.runtime.process.plugins import profile_of
from shared.runtime.process.process import ProcessSettings
from shared.scheduling.profiles import DEFAULT_ALONE, Profiles


@dataclass(frozen=True, kw_only=True)
class AgentSettings(ProcessSettings):
    """What an agent is told beside what every service is."""

    policy: str = "kube-default"
    """Which policy ranks the nodes until etcd names one; an unknown name is refused at start with those there are."""
    policy_deadline_ms: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = round(PLACEMENT.limits.deadline_s * 1000)
    """CPU time of one answer of a policy; one that is late 3 times in a row, or takes 3 times as long, rests, and the
    heuristic decides meanwhile."""
    reward_delay_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 15.0
    """From a decision to the reading of its reward for the learner: what a pod needs to show in its node's use."""
    workload_speed: Annotated[float, msgspec.Meta(gt=0, le=10_000)] = 1.0
    """Pods live so many seconds per second: above 1 only against a twin that plays faster than life."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    """Breaks ties, together with the id: same seed, same id, same offers, same decisions."""
    node: str = ""
    """The one node this agent serves (a DaemonSet's, from ``spec.nodeName``); empty: a share of all nodes."""
    sensor_every_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 5.0
    """How often an agent of one node reads what that node uses; 0: never. An agent of many nodes reads none."""
    host_proc: Path = Path("/proc")
    """The node's /proc; in a container where it is mounted, read-only."""
    host_sys: Path = Path("/sys")
    """The node's /sys, likewise."""
    sensor_network: Literal["node", "none"] = "node"
    """``none``: the interfaces in ``host_proc`` are not the node's (a pod has its own network), and are not read."""
    sensor_disk_mbytes: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)] = 0.0
    """Megabytes a second that the node's disks can do, of which use is a share; 0: the share of time in which the
    busiest disk has work."""
    sensor_network_mbits: Annotated[float, msgspec.Meta(ge=0, le=10_000_000)] = 0.0
    """Megabits a second that the node's links can do; 0: as the links say."""
    probes_per_s: Annotated[float, msgspec.Meta(ge=0, le=4)] = 3.0
    """Probes of other nodes per second at most, by which the delay between nodes is known; 0: none sent or answered."""
    probe_listen: str = ""
    """HOST:PORT (UDP) where probes are answered; empty: the host of ``listen``, any port."""
    target_delays: Path | None = None
    """A demo's and a test's alone: a file of milliseconds that every attempt of a latency target takes longer, ``NAME
    MILLISECONDS`` a line, read at each attempt; none: what the network takes."""
    gpu_shares: str = GPU_SHARES
    """What policies see as a GPU, comma-separated: RESOURCE=THOUSANDTHS of a device plugin's unit, or
    DRIVER[:CAPACITY]=THOUSANDTHS of a device that claims are given; the same for agents and coordinators. See
    docs/gpus.md."""
    power_curves: Path | None = None
    """A file that says what your nodes and GPUs draw; empty: published figures. The same for agents and coordinators.
    See docs/policies/power.md."""
    load_parts: str = LOAD_PARTS
    """Of what a node's load is the mean, which ee, lb, el and the goal balance go by: cpu, memory, disk, network, pods,
    comma-separated; the same for agents and coordinators. See docs/policies/deepsets.md."""
    profiles: Path | None = None
    """A file of profiles: schedulerNames that are served beside ``scheduler_name``, each with its filters, scores,
    arguments and policy; empty: none. The same for agents, coordinators and binders. See docs/profiles.md."""
    plugins: tuple[str, ...] = ()
    """Filters, scores and policies of installed packages that are used, by the names of their entry points,
    comma-separated; the same for agents, coordinators and binders. See docs/plugins.md."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.probe_listen:
            split_host_port(self.probe_listen, "probe_listen")
        if 0 < self.sensor_every_s < 0.2:
            raise ValueError(
                "sensor_every_s: below 0.2 the kernel's ticks are too coarse; give 0.2 or more, or 0 for never"
            )
        self.served()

    def served(self) -> Profiles:
        """The profiles beside the mesh's own."""
        profile = profile_of(self.plugins, self.gpu_shares, self.power_curves, self.load_parts)
        if self.profiles is None:
            return DEFAULT_ALONE
        # YAML and Kubernetes' objects: an agent without a file needs neither
        from shared.runtime.process.profiles_file import profiles_of

        return profiles_of(self.profiles, tuple(one.name for one in profile.scores), make_policy)
