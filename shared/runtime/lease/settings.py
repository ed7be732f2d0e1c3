"""Settings of every service that leads, and of the cluster that it leads in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from shared.runtime.lease.thread import LEADER_HUNG_AFTER_S
from shared.runtime.process.process import ProcessSettings


@dataclass(frozen=True, kw_only=True)
class LeaderSettings(ProcessSettings):
    """What a service that leads is told beside what every service is."""

    kubeconfig: Path | None = None
    """Which cluster; empty: in-cluster where we are in one, else KUBECONFIG, else ~/.kube/config."""
    context: str = ""
    """Context of the kubeconfig; empty: its current one."""
    hung_after_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = LEADER_HUNG_AFTER_S
    """Without the end of one turn of its loop for so long, a leader gives up its lease; however busy, it keeps it."""

    def refuse_certificates(self, services: str) -> None:
        """``ValueError`` naming the setting: these services share this process, and a certificate is of one role."""
        for field in ("tls_cert", "etcd_cert"):
            if getattr(self, field) is not None:
                raise ValueError(
                    f"{field}: a certificate is of one role, and this process has two; run {services} each in a "
                    f"process of its own, or leave {field} out"
                )
