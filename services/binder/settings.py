"""Settings of a binder. The machinery is in ``shared.runtime.process.settings``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from services.binder.core.state import BinderCoreSettings
from shared.runtime.lease.settings import LeaderSettings
from shared.runtime.process.plugins import plugins_of
from shared.runtime.process.process import SchedulerName, Standby
from shared.runtime.process.profiles_file import profiles_of
from shared.scheduling.profiles import Profiles


@dataclass(frozen=True, kw_only=True)
class BinderSettings(LeaderSettings):
    """What a binder is told beside what every service is."""

    scheduler_name: SchedulerName = "conclave"
    """Pods with this ``spec.schedulerName`` are ours; all others are counted and never bound."""
    standby: Standby = "warm"
    """What this process keeps while another one leads. warm: what it would list, so that it takes over without listing;
    1.0 to 1.5 KB a pod. cold: nothing; a takeover lists everything, which takes seconds where there are 50,000 pods."""
    shard: str = "0"
    """The shard of nodes this binder campaigns for."""
    max_bindings: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 32
    """Bindings in flight to the API server."""
    bind_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=60_000)] = 5_000
    """Deadline of one Binding; what is not answered by then is read back."""
    volumes_wait_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 600.0
    """So long a Binding waits for the pod's volumes (kube-scheduler's bindTimeoutSeconds); then another try is made."""
    sweep_every_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 30.0
    """How often intents in etcd and late confirmations are looked at."""
    compare_every_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 300.0
    """How often the cache is compared with a full list of pods."""
    validate: bool = False
    """Check every invariant of the core after each batch of events, and end the term where one is broken, with the
    stories of the pods it names. For tests and for hunting a bug: it costs as much as all pods, each time."""
    unknown_zones: Literal["taken", "free"] = "taken"
    """How that counts of a node's zones which its object does not say: what init containers hold, which zones share
    memory, whom a late object knows; the same for coordinators and binders. See docs/numa.md."""
    profiles: Path | None = None
    """A file of profiles: schedulerNames that are served beside ``scheduler_name``, each with its filters, scores,
    arguments and policy; empty: none. The same for agents, coordinators and binders. See docs/profiles.md."""
    plugins: tuple[str, ...] = ()
    """Filters, scores and policies of installed packages that are used, by the names of their entry points,
    comma-separated; the same for agents, coordinators and binders. See docs/plugins.md."""

    def __post_init__(self) -> None:
        super().__post_init__()
        plugins_of(self.plugins)
        self.served()

    def served(self) -> Profiles:
        """The profiles beside the mesh's own. Scores and policies are others' to look at."""
        scores = plugins_of(self.plugins).profile.scores
        return profiles_of(self.profiles, tuple(one.name for one in scores))

    def binder_core(self) -> BinderCoreSettings:
        """What the core is told."""
        return BinderCoreSettings(
            scheduler_name=self.scheduler_name,
            profiles=self.served(),
            profile=plugins_of(self.plugins).profile,
            max_bindings=self.max_bindings,
            volumes_wait_s=self.volumes_wait_s,
            sweep_every_s=self.sweep_every_s,
            compare_every_s=self.compare_every_s,
            trust_zones=self.unknown_zones == "free",
            validate=self.validate,
        )
