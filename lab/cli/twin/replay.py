"""Reads a twin file, replays it, and says in words and figures what came of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from lab.worlds.placement.measured_world import named_policy
from lab.worlds.placement.replaying import Replay, ReplayedLoad, replay
from shared.errors import ConfigError, ObjectError
from shared.policy.usage.utilisation import UtilisationStore
from twin.model.capture import PARTS, Capture, decode, require_metrics

MAX_FILE_BYTES = 512 << 20


def read_capture(file: Path) -> Capture:
    """The capture in ``file``. ``ConfigError``: it cannot be read."""
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{file}: larger than {MAX_FILE_BYTES} bytes; capture a shorter stretch")
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; give a file of 'conclave twin capture'") from None
    return decode(data, str(file))


def replay_file(file: Path, *, policy: str | None, seed: int) -> Replay:
    """The replay. ``ConfigError``: the file cannot be used, holds no metrics, or the policy is not known."""
    if policy is not None:
        named_policy(policy, UtilisationStore())
    capture = read_capture(file)
    require_metrics(capture, str(file), "replay compares with them")
    try:
        return replay(capture, policy=policy or "", rng=Random(seed))
    except ObjectError as error:
        raise ConfigError(f"{file}: {error}; correct the annotation in the cluster and capture it again") from None


def figures_of(found: Replay) -> dict[str, Any]:
    """The JSON."""
    return asdict(found)


def lines_of(found: Replay) -> list[str]:
    """A table of errors per node and part, what it rests on, and the other policy's outcome."""
    best = found.fitted or found.requests
    header = "".join(f"{part:>10}" for part in PARTS)
    lines = ["mean absolute error, % of what the node offers", f"{'':<28}{header}"]
    lines += [_row(node, errors) for node, errors in sorted(best.by_node.items())]
    lines.append(_row("mean over nodes", best.by_part))
    if found.fitted is not None:
        lines.append(_row("by requests alone", found.requests.by_part))
    lines.append(
        f"usage of pods: {found.annotated} by annotation, {found.estimated} estimated from the first half,"
        f" {found.requested} by requests"
    )
    lines += [f"left out: {text}" for text in found.unusable]
    lines.append(f"recorded placement: {_load(found.recorded)}")
    if found.other is not None:
        lines.append(
            f"under the policy:   {_load(found.other)}; {found.moved} of {found.decided} pods elsewhere,"
            f" {found.unplaced} unplaced"
        )
    return lines


def _row(name: str, errors: Any) -> str:
    cells = "".join(f"{errors[part]:>10.2f}" if part in errors else f"{'-':>10}" for part in PARTS)
    return f"{name[:27]:<28}{cells}"


def _load(load: ReplayedLoad) -> str:
    return f"imbalance {load.imbalance:.4f}, highest {load.highest:.1%}, {load.energy_wh:.1f} Wh"
