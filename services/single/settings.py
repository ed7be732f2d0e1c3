"""Settings of the mesh in one process: a coordinator's and a binder's; what both have counts for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from services.binder.settings import BinderSettings
from services.coordinator.settings import CoordinatorSettings


@dataclass(frozen=True, kw_only=True)
class SingleSettings(CoordinatorSettings, BinderSettings):
    """What the process is told. It decides itself unless agents are registered."""

    COMPOSES: ClassVar[Mapping[str, Mapping[str, str]]] = {"coordinator": {}, "binder": {}}
    """Whose settings these are: a variable of one of them alone is not passed over in silence (``load``)."""

    embedded_agent: bool = True
    """While no agent is registered the leader decides for all nodes itself. See docs/adr/0027."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_certificates("coordinator and binder")
