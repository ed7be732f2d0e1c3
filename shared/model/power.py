"""What nodes draw: power curves by kind of node and by model of GPU, published ones and a user's own.

A user's are a file in TOML, the setting ``power_curves``; what it does not name keeps what is published:

    [gpus.T4]              # by the label conclave.io/gpu-model, else nvidia.com/gpu.product
    idle = 10              # watts of a device that nobody uses
    peak = 70              # and of one of which any part is given away

    [nodes."m5.large"]     # by the label conclave.io/power-curve, else node.kubernetes.io/instance-type, else GPU model
    watts = [40, 95, 120]  # without GPUs, at evenly spaced loads from no core requested to all of them

``cores``: the curve is of so many cores, and a node draws it as often as it has them; ``steps``: so many cores are one
package that draws its first figure while none of its cores is requested and its last once any is;
``off_when_empty``: a node without pods draws nothing, since something turns it off. The name "*" stands for whatever no
other name fits. Pure.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from shared.errors import ConfigError

WATTS = (58.4, 98, 109, 118, 128, 140, 153, 170, 189, 205, 222)
"""IBM x3550 M3, 2 x Xeon X5675, 12 cores, 16 GB: SPECpower_ssj2008, result power_ssj2008-20110406-00368, at 0, 10, ...,
100 % load, as used by Beloglazov and Buyya, CCPE 24 (2012) 1397-1420. Idle it draws 26 % of its most."""
WATTS_CORES = 24
"""As Kubernetes counts a node's cpu: two threads a core."""
FLAT_WATTS = (93.7, 97, 101, 105, 110, 116, 121, 125, 129, 133, 135)
"""HP ProLiant ML110 G5, Xeon 3075, 2 cores, 4 GB (table 2 there); idle it draws 69 %."""

CURVE_LABEL = "conclave.io/power-curve"
TYPE_LABEL = "node.kubernetes.io/instance-type"
OTHERS = "*"
"""The name for all that no other name fits."""
MOST_WATTS = 100_000
MOST_FIGURES, MOST_CORES = 101, 4096
MOST_BYTES = 1 << 16
MOST_TOLD = 200
"""Characters of what a library says of a fault."""


_SLICED = re.compile(r"(-MIG-[^-]+)?(-SHARED)?$")


def whole_model(model: str) -> str:
    """Of the whole GPU, where the label tells how it is shared (GPU feature discovery: time slices, MIG)."""
    return _SLICED.sub("", model, count=1)


class GpuWatts(Struct, frozen=True, forbid_unknown_fields=True):
    """Watts of one device: unused, and with any part of it given away (Lettich et al., CCGrid 2025)."""

    idle: float
    peak: float


class NodeWatts(Struct, frozen=True, forbid_unknown_fields=True):
    """Watts of a node without its GPUs. ``cores`` 0: of the whole node, however many it has."""

    watts: tuple[float, ...]
    cores: float = 0.0
    steps: bool = False
    off_when_empty: bool = False


class PowerCurves(Struct, frozen=True):
    """``nodes`` and ``gpus`` by name; ``node`` and ``gpu`` stand for those that no name fits."""

    nodes: Mapping[str, NodeWatts]
    gpus: Mapping[str, GpuWatts]
    node: NodeWatts
    gpu: GpuWatts

    def of_node(self, labels: Mapping[str, str], model: str) -> NodeWatts:
        """Of the node with these labels, whose GPUs are of this model."""
        for name in (labels.get(CURVE_LABEL), labels.get(TYPE_LABEL), model, whole_model(model)):
            if name and name in self.nodes:
                return self.nodes[name]
        return self.node

    def of_gpu(self, model: str) -> GpuWatts:
        """Of one device of this model."""
        return self.gpus.get(model) or self.gpus.get(whole_model(model), self.gpu)


_T4, _P100, _V100 = GpuWatts(10, 70), GpuWatts(25, 250), GpuWatts(30, 300)
_A10, _A100 = GpuWatts(30, 150), GpuWatts(50, 400)


def _eighth(peak: float) -> GpuWatts:
    return GpuWatts(peak / 8, peak)


GPUS: Mapping[str, GpuWatts] = {
    "T4": _T4, "Tesla-T4": _T4,
    "P100": _P100, "Tesla-P100-PCIE-16GB": _P100,
    "V100M16": _V100, "Tesla-V100-SXM2-16GB": _V100,
    "V100M32": _V100, "Tesla-V100-SXM2-32GB": _V100,
    "A10": _A10, "NVIDIA-A10": _A10, "G2": _A10,
    "A100": _A100, "NVIDIA-A100-SXM4-40GB": _A100, "NVIDIA-A100-SXM4-80GB": _A100, "G3": _A100,
    "NVIDIA-A100-PCIE-40GB": _eighth(250), "NVIDIA-A100-80GB-PCIe": _eighth(300), "NVIDIA-L4": _eighth(72),
    "NVIDIA-L40S": _eighth(350), "NVIDIA-H100-PCIe": _eighth(350), "NVIDIA-H100-80GB-HBM3": _eighth(700),
    "NVIDIA-H200": _eighth(700),
}  # fmt: skip
"""Idle and thermal design power, as the public PWR model has them (Lettich et al., "Power- and Fragmentation-aware
Online Scheduling for GPU Datacenters", CCGrid 2025, arXiv 2412.17484; github.com/Fr4nz83/PWR-plugin-kubernetes), under
the names of openb and under NVIDIA's. openb does not tell what G2 and G3 are; PWR's authors take them for A10 and A100
(pkg/type/open-gpu-share/utils/const.go at 3bfd53f, lines 101-120). From A100 PCIe on, which PWR has not, NVIDIA's
thermal design power, and idle an eighth of it, assumed after PWR's A100."""

PUBLISHED = PowerCurves(
    nodes={}, gpus=GPUS, node=NodeWatts(WATTS, cores=WATTS_CORES, off_when_empty=True), gpu=GpuWatts(25, 250)
)
"""What holds where the user names nothing: PWR's GPUs, and the server of SPECpower as often as a node has its cores,
off while it has no pods."""

_E5_2682 = NodeWatts((15, 120), cores=32, steps=True)
_8163 = NodeWatts((20, 165), cores=48, steps=True)
_6326 = NodeWatts((20, 185), cores=32, steps=True)
_8369B = NodeWatts((20, 270), cores=64, steps=True)
PWR = PowerCurves(
    nodes={
        "T4": _8163, "P100": _E5_2682, "V100M16": _6326, "V100M32": _6326, "A10": _8369B, "G2": _8369B,
        "A100": _8369B, "G3": _8369B,
    },
    gpus=GPUS, node=_E5_2682, gpu=GpuWatts(25, 250),
)  # fmt: skip
"""PWR's figures throughout, by which openb is measured: beside each model of GPU the processor that its authors take
for it (Xeon 8163, E5-2682 v4, 6326, 8369B), two threads a core. A package of which any thread is given away draws its
thermal design power, any other its idle power; nodes stay on."""


def parse_power_curves(text: str, source: str = "power_curves") -> PowerCurves:
    """A user's file over what is published; "": as published. Raises ``ConfigError``: which entry, and its remedy."""
    if len(text.encode()) > MOST_BYTES:
        raise ConfigError(f"{source}: more than {MOST_BYTES} bytes; a curve per kind of node and model of GPU will do")
    try:
        given = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # an integer of very many digits is a plain ValueError
        raise ConfigError(f"{source}: is no TOML ({_told(error)}); see docs/policies/power.md") from None
    nodes, gpus = _table(given, "nodes", NodeWatts, source), _table(given, "gpus", GpuWatts, source)
    if given:
        raise ConfigError(f"{source}: {_short(next(iter(given)))} is not known; give [nodes.NAME] and [gpus.NAME]")
    for name, node in nodes.items():
        _check(node.watts, f"{source}: nodes.{_short(name)}.watts")
        _check_node(node, f"{source}: nodes.{_short(name)}")
    for name, gpu in gpus.items():
        _check((gpu.idle, gpu.peak), f"{source}: gpus.{_short(name)}: idle, peak")
    node, gpu = nodes.pop(OTHERS, PUBLISHED.node), gpus.pop(OTHERS, PUBLISHED.gpu)
    return PowerCurves(nodes=nodes, gpus={**PUBLISHED.gpus, **gpus}, node=node, gpu=gpu)


_Curve = TypeVar("_Curve", NodeWatts, GpuWatts)


def _table(given: dict[str, Any], key: str, kind: type[_Curve], source: str) -> dict[str, _Curve]:
    """The curves under ``key``, which is taken out of what was given."""
    entries = given.pop(key, {})
    if not isinstance(entries, dict):
        raise ConfigError(f"{source}: {key} is no table; write [{key}.NAME]")
    found: dict[str, _Curve] = {}
    for name, entry in entries.items():
        if not name:
            raise ConfigError(f"{source}: {key} has an entry without a name; give one, or '*' for all others")
        try:
            found[name] = msgspec.convert(entry, kind)
        except msgspec.ValidationError as error:
            wanted = "watts = [IDLE, ..., PEAK]" if key == "nodes" else "idle and peak, in watts"
            raise ConfigError(f"{source}: {key}.{_short(name)}: {_told(error)}; give {wanted}") from None
    return found


def _check_node(node: NodeWatts, where: str) -> None:
    if not 2 <= len(node.watts) <= MOST_FIGURES:
        raise ConfigError(f"{where}.watts: {len(node.watts)} figures; give 2 to {MOST_FIGURES}, idle first")
    if node.cores and not 1 <= node.cores <= MOST_CORES:  # nor is what is not a number
        raise ConfigError(
            f"{where}.cores: {node.cores:g} is not 1 to {MOST_CORES}; leave it out for a curve of the whole node"
        )
    if node.steps and not node.cores:
        raise ConfigError(f"{where}.steps: needs cores; give how many one package has")
    if node.steps and len(node.watts) != 2:
        raise ConfigError(f"{where}.steps: {len(node.watts)} figures; a package draws one of two, idle and peak")


def _check(watts: tuple[float, ...], where: str) -> None:
    for figure in watts:
        if not (math.isfinite(figure) and 0 <= figure <= MOST_WATTS):
            raise ConfigError(f"{where}: {figure:g} is not 0 to {MOST_WATTS}; give watts")
    for before, after in pairwise(watts):
        if after < before:
            raise ConfigError(f"{where}: fall from {before:g} to {after:g}; give them from idle to full load")


def _told(error: Exception) -> str:
    return " ".join(f"{error}".split())[:MOST_TOLD]


def _short(name: str) -> str:
    return repr(name[:64])
