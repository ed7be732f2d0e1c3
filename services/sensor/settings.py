"""Settings of a sensor. It has none of what other services share but TLS: it knows no etcd and listens to no peer."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from shared.hostport import EVERY_HOST, split_host_port


@dataclass(frozen=True, kw_only=True)
class SensorSettings:
    """What a sensor is told."""

    node: str
    """The node that it is on (``spec.nodeName``); its readings are told of that one."""
    coordinators: tuple[str, ...]
    """HOST:PORT of coordinators, comma-separated. A name may lead to several (a headless Service): each is asked until
    one leads."""
    sensor_every_s: Annotated[float, msgspec.Meta(ge=0.2, le=60)] = 5.0
    """How often it reads what the node uses."""
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
    probes_per_s: Annotated[float, msgspec.Meta(ge=0, le=4)] = 0.5
    """Probes of other nodes per second at most, by which the delay between nodes is known; 0: none sent or answered."""
    probe_listen: str = ":0"
    """HOST:PORT (UDP) where probes are answered, :PORT for every address; others are told the address from which the
    coordinator is called, or HOST."""
    live_listen: str = ""
    """HOST:PORT, or :PORT, where a kubelet hears whether it makes progress (plain HTTP). Empty: nowhere."""
    token_file: Path | None = None
    """File with the bearer tokens between services; the first one is sent."""
    tls_cert: Path | None = None
    """Our certificate for mutual TLS between services (PEM)."""
    tls_key: Path | None = None
    """The key of ``tls_cert`` (PEM)."""
    tls_ca: Path | None = None
    """CA that signs the services' certificates (PEM)."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""

    def __post_init__(self) -> None:
        if not self.node:
            raise ValueError("node: is empty; give the name of the node that the sensor is on")
        if not self.coordinators:
            raise ValueError("coordinators: is empty; give HOST:PORT of at least one coordinator")
        for one in self.coordinators:
            host, port = split_host_port(one, "coordinators")
            if host == EVERY_HOST or not port:
                raise ValueError(f"coordinators: {one!r} leads nowhere; give HOST:PORT of a coordinator")
        host, _ = split_host_port(self.probe_listen, "probe_listen")
        try:
            ip_address(host or "::")
        except ValueError:
            raise ValueError(f"probe_listen: {host!r} is no IP address; give one, or :PORT") from None
        if self.live_listen:
            split_host_port(self.live_listen, "live_listen")
        together = (self.tls_cert, self.tls_key, self.tls_ca)
        if any(together) and not all(together):
            raise ValueError("tls_cert, tls_key, tls_ca: give all three or none")
