"""Settings of an extender. It knows no etcd and no mesh: what it needs is the API server and a policy."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from shared.hostport import split_host_port
from shared.model.gpu_shares import DEFAULT_TEXT as GPU_SHARES
from shared.model.load import DEFAULT_TEXT as LOAD_PARTS
from shared.policy.registry import make_policy
from shared.runtime.process.plugins import profile_of


@dataclass(frozen=True, kw_only=True)
class ExtenderSettings:
    """What an extender is told."""

    policy: str = "lb"
    """By which policy nodes are ranked; with ``weights`` the policy whose weights they are."""
    weights: Path | None = None
    """A weights file of ``conclave train``; empty: those that are shipped."""
    listen: str = "127.0.0.1:8704"
    """HOST:PORT where kube-scheduler asks; port 0 takes a free one. Beyond loopback only with the TLS files."""
    kubeconfig: Path | None = None
    """Which cluster; empty: in-cluster where we are in one, else KUBECONFIG, else ~/.kube/config."""
    context: str = ""
    """Context of the kubeconfig; empty: its current one."""
    policy_deadline_ms: Annotated[float, msgspec.Meta(gt=0, le=10_000)] = 50.0
    """A policy that takes longer for one pod counts as failed: its nodes all get the same score."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    """Of policies that draw."""
    gpu_shares: str = GPU_SHARES
    """What policies see as a GPU; see docs/gpus.md."""
    power_curves: Path | None = None
    """A file that says what your nodes and GPUs draw; empty: published figures. See docs/policies/power.md."""
    load_parts: str = LOAD_PARTS
    """Of what a node's load is the mean, which ee, lb and el go by. See docs/policies/deepsets.md."""
    plugins: tuple[str, ...] = ()
    """Policies of installed packages that are used, by the names of their entry points, comma-separated."""
    tls_cert: Path | None = None
    """Our certificate (PEM); then callers must show one too."""
    tls_key: Path | None = None
    """The key of ``tls_cert`` (PEM)."""
    tls_ca: Path | None = None
    """CA that signs kube-scheduler's client certificate (PEM)."""
    live_listen: str = ""
    """HOST:PORT, or :PORT, where a kubelet hears whether it makes progress (plain HTTP). Empty: nowhere."""
    follow_parent: bool = False
    """End when the process that started this one is gone."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""

    def __post_init__(self) -> None:
        together = (self.tls_cert, self.tls_key, self.tls_ca)
        if any(together) and not all(together):
            raise ValueError("tls_cert, tls_key, tls_ca: give all three or none")
        host, _ = split_host_port(self.listen)
        if not self.tls_cert and not _is_loopback(host):
            raise ValueError(f"listen: {self.listen} is beyond loopback; give the tls_* files, or listen on 127.0.0.1")
        if self.live_listen:
            split_host_port(self.live_listen, "live_listen")
        profile_of(self.plugins, self.gpu_shares, self.power_curves, self.load_parts)
        if self.weights is None:
            make_policy(self.policy)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
