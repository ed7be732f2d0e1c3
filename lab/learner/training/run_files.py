"""What every training run keeps in its folder, and how it ends: one piece for all trainers.

    seed-N.ckpt        checkpoints (``checkpoint.py``)        curves-N.jsonl   every scalar, for the report
    logs/seed-N        TensorBoard                            POLICY.npz, .json  weights and card, written whole

An existing run is never overwritten, a missing one never resumed, and two trainers never share a folder.
It knows nothing of any policy.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, TextIO

import click
import msgspec
from torch.utils.tensorboard import SummaryWriter

from shared.errors import ConfigError
from shared.policy.weights import Shapes, WeightsFile, decode, encode


def checkpoint_of(out: Path, seed: int) -> Path:
    """Where the run of a seed keeps its state."""
    return out / f"seed-{seed}.ckpt"


@contextmanager
def run_folder(out: Path, seeds: Sequence[int], *, resume: bool) -> Iterator[None]:
    """The folder for runs of these seeds, made where it is not there, and nobody else trains into it meanwhile.

    The lock is the folder's own and goes with the process, whatever ends it. A folder made for nothing is taken away.
    ``ConfigError``: it cannot be made or written, another trainer is at work in it, or ``resume`` does not fit what is
    there.
    """
    new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ConfigError(f"--out: {out} cannot be made ({error.strerror}); give a folder") from error
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"--out: another trainer is at work in {out}; wait for it, or give another folder"
            ) from None
        _check_resumable(out, seeds, resume=resume)
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"--out: {error.filename or out}: {error.strerror}; make room, then go on with --resume"
            ) from error
    finally:
        os.close(folder)
        if new:
            with contextlib.suppress(OSError):
                out.rmdir()


def _check_resumable(out: Path, seeds: Sequence[int], *, resume: bool) -> None:
    known = [path for path in (checkpoint_of(out, seed) for seed in seeds) if path.exists()]
    if known and not resume:
        raise ConfigError(f"--out: {known[0]} is there already; go on with --resume, or give another folder")
    if resume and not known:
        raise ConfigError(f"--resume: {out} holds no checkpoint of seeds {list(seeds)}; leave it out")


@dataclass(slots=True)
class Recording:
    """Where one run's figures go. ``shown``: a person watches the bar; else lines must do."""

    writer: SummaryWriter
    shown: bool
    _curves: TextIO
    _bar: Any

    def note(self, step: int, scalars: Mapping[str, float]) -> None:
        """The figures of one step, to every place at once."""
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, step)
        self._curves.write(json.dumps({"step": step, **scalars}) + "\n")
        self._curves.flush()
        self._bar.update(max(0, step - self._bar.pos))


@contextmanager
def recording(out: Path, seed: int, *, label: str, done: int, length: int) -> Iterator[Recording]:
    """The places for the figures of one run that stands at step ``done`` of ``length``; SIGTERM ends it as Ctrl-C
    does. Steps after ``done`` that an earlier run logged are purged: they are trained again."""
    shown = sys.stderr.isatty()
    _purge(out / f"curves-{seed}.jsonl", done)
    writer = SummaryWriter(str(out / "logs" / f"seed-{seed}"), purge_step=done)
    try:
        with (
            ending_by_signal(),
            (out / f"curves-{seed}.jsonl").open("a", encoding="utf-8") as curves,
            click.progressbar(length=length, label=label, file=sys.stderr, hidden=not shown) as bar,
        ):
            bar.update(done)
            yield Recording(writer, shown, curves, bar)
    finally:
        writer.close()


@contextmanager
def ending_by_signal() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: between two steps, with the last checkpoint kept."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _purge(curves: Path, done: int) -> None:
    """Keep the steps up to ``done``, of a run that has any; a line that a crash cut short goes too."""
    if not curves.exists():
        return
    lines = curves.read_bytes().splitlines(keepends=True) if done else []
    kept = [line for line in lines if _step_of(line) <= done]
    write_file(curves, b"".join(kept))


def _step_of(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"]) if line.endswith(b"\n") else inf
    except (ValueError, KeyError, TypeError):
        return inf


def write_weights(out: Path, weights: WeightsFile, *, expect_shapes: Shapes | None = None) -> Path:
    """``POLICY.npz`` and its card as ``POLICY.json``, checked as who reads them will; where the weights lie.

    ``ConfigError``: they would be refused.
    """
    policy, data = weights.card.policy, encode(weights)
    card = decode(data, policy=policy, expect_shapes=expect_shapes).card
    file = out / f"{policy}.npz"
    write_file(file, data)
    write_file(out / f"{policy}.json", json.dumps(msgspec.to_builtins(card), indent=2, sort_keys=True).encode() + b"\n")
    return file


def write_file(path: Path, data: bytes) -> None:
    """Write a file of the run whole: a reader finds the old one or the new one."""
    partial = path.with_suffix(path.suffix + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
