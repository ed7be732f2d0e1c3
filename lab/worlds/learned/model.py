"""A learned twin: a step of a service graph by look-up where just that was recorded, else by networks; and its file.

Networks are an ensemble of small ones that see the same and were trained on different draws of the stretches (Chua et
al. 2018, "PETS"): what they agree on is known, how far they differ (``spread``) says how little. A step draws the next
state from the mean of what they say. A state and action that were recorded exactly are answered by one of the states
that followed (Soulé et al. 2025, KARMA: "exact look-up, else the network").

numpy alone. The file is an npz of plain arrays with a header of JSON; nothing in it is code.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lab.worlds.learned import encoding as code
from lab.worlds.learned.encoding import Floats, Ints, LearnedState, RecordedSteps, SignalLevels, UsualUnits
from shared.errors import ConfigError

SCHEMA = 1
FILE = "services-twin.npz"
HEADER = "header"
MAX_BYTES = 256 << 20
CUTS = (code.CHANGES, code.CHANGES + code.PENDINGS)
REMEDY = "train it again with conclave train services-twin"


class TwinMode(Enum):
    """Who says what follows."""

    HYBRID = "hybrid"
    """The table where just this was recorded, else the networks."""
    NETWORKS = "networks"
    TABLE = "table"


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the arrays are of."""

    schema: int = SCHEMA
    graph: str
    services: tuple[str, ...]
    entries: tuple[str, ...]
    scenarios: tuple[str, ...]
    step_s: float
    latency_s: float
    members: int
    layers: int
    missing: dict[str, float]
    """By scenario: the share of readings that were missing beside those of services without a ready pod."""
    age_s: float
    """How old readings were, in the mean."""
    series: str = ""
    """sha256 of the series' file."""
    trained: dict[str, Any] = {}


Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Prediction:
    """``change``, ``pending`` and ``levels``: probabilities [batch, services, classes] (levels: [batch, services, 6,
    LEVELS]), the mean over the members; ``spread`` [batch]: standard deviation over members of what they expect of the
    signals, mean over services and signals, in the signals' own units."""

    change: Floats
    pending: Floats
    levels: Floats
    spread: Floats


class LearnedTwin:
    """See the module. ``mode``: who answers; with the table alone, what was never recorded stays as it is."""

    def __init__(self, header: Header, arrays: Arrays, *, mode: TwinMode = TwinMode.HYBRID) -> None:
        self.header, self.arrays, self.mode = header, arrays, mode
        self.units = UsualUnits(arrays["usual"].astype(float), header.latency_s, arrays["cores"].astype(float))
        self.levels = SignalLevels(arrays["edges"].astype(float), arrays["values"].astype(float))
        self.most: Ints = arrays["most"].astype(np.int64)
        self.entries = tuple(header.services.index(name) for name in header.entries)
        calls = arrays["calls"].astype(float)
        self.graph = code.Graph(calls, self.entries, self.most, len(header.scenarios))
        self._weights = [
            (arrays[f"l{at}.w"].astype(np.float32), arrays[f"l{at}.b"].astype(np.float32))
            for at in range(header.layers)
        ]
        self._keys = arrays["keys"]

    def scenario(self, name: str) -> int:
        """Its number. ``ConfigError``: no series of it were recorded."""
        if name not in self.header.scenarios:
            raise ConfigError(
                f"twin: no series of {name!r} were recorded, only of {', '.join(self.header.scenarios)}; choose one of"
                " these, or record it and train again"
            )
        return self.header.scenarios.index(name)

    def start(self, scenario: str, rng: np.random.Generator) -> LearnedState:
        """One of the recorded beginnings."""
        rows = np.flatnonzero(self.arrays["start_scenario"] == self.scenario(scenario))
        row = rows[[int(rng.integers(len(rows)))]]
        counts: Ints = self.arrays["start_counts"][row].astype(np.int64)
        return code.first(counts, self.arrays["start_signals"][row].astype(float))

    def inputs(self, state: LearnedState, replicas: Ints, loads: Floats, scenario: Ints) -> Floats:
        """What the networks see, on their scale: [batch, services, inputs]."""
        seen = code.inputs(state, replicas, loads, scenario, self.graph, self.levels)
        found: Floats = (seen - self.arrays["shift"]) / self.arrays["scale"]
        return found

    def predict(self, state: LearnedState, replicas: Ints, loads: Floats, scenario: Ints) -> Prediction:
        """What the networks say of the next state."""
        seen = self.inputs(state, replicas, loads, scenario).astype(np.float32)
        hidden: NDArray[np.float32] = seen.reshape(1, -1, seen.shape[-1])
        for at, (weights, bias) in enumerate(self._weights):
            hidden = np.matmul(hidden, weights) + bias[:, None, :]
            if at + 1 < len(self._weights):
                hidden = np.maximum(hidden, 0.0)
        services = len(self.header.services)
        logits = hidden.reshape(hidden.shape[0], len(replicas), services, code.OUTPUTS)
        change, pending, levels = np.split(logits, CUTS, axis=-1)
        shares = _softmax(levels.reshape(*levels.shape[:-1], len(code.SIGNALS), code.LEVELS))
        expected = (shares * self.levels.values).sum(axis=-1)
        return Prediction(
            _softmax(change).mean(axis=0),
            _softmax(pending).mean(axis=0),
            shares.mean(axis=0),
            expected.std(axis=0).mean(axis=(1, 2)),
        )

    def expected(self, found: Prediction, state: LearnedState, replicas: Ints) -> tuple[Floats, Floats]:
        """(counts [batch, services, 4], signals [batch, services, 6]): means, for errors of one step."""
        ready = np.clip(
            code.staying(state, replicas) + found.change @ np.arange(-code.MOST_CHANGE, code.MOST_CHANGE + 1.0),
            0.0,
            replicas,
        )
        pending = np.minimum(found.pending @ np.arange(code.PENDINGS), replicas - ready)
        counts = np.stack([replicas, ready, replicas - ready - pending, pending], axis=-1).astype(float)
        return counts, (found.levels * self.levels.values).sum(axis=-1)

    def recorded(
        self, state: LearnedState, replicas: Ints, loads: Floats, scenario: Ints
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(first, after): rows of the look-up that begin with just this, [batch] each; none where they are equal."""
        keys = digests(code.key_parts(state, replicas, loads, scenario))
        return np.searchsorted(self._keys, keys, side="left"), np.searchsorted(self._keys, keys, side="right")

    def step(
        self, state: LearnedState, replicas: Ints, loads: Floats, scenario: Ints, rng: np.random.Generator
    ) -> tuple[LearnedState, Floats, NDArray[np.bool_]]:
        """(next state, spread [batch], looked up [batch]): one draw of what may follow."""
        batch = len(replicas)
        looked_up, spread = np.zeros(batch, bool), np.zeros(batch)
        if self.mode is TwinMode.TABLE:
            same = np.full_like(replicas, code.MOST_CHANGE)
            counts = code.counted(state, replicas, same, state.counts[..., code.PENDING])
            signals = state.signals.copy()
        else:
            found = self.predict(state, replicas, loads, scenario)
            spread = found.spread
            counts, signals = self._draw(found, state, replicas, scenario, rng)
        if self.mode is not TwinMode.NETWORKS:
            low, high = self.recorded(state, replicas, loads, scenario)
            looked_up = high > low
            for at in np.flatnonzero(looked_up).tolist():
                row = int(rng.integers(low[at], high[at]))
                counts[at] = self.arrays["after_counts"][row]
                signals[at] = self.arrays["after_signals"][row]
        entries = list(self.entries)
        arriving = signals[:, entries, code.ARRIVALS]
        signals[:, entries, code.ARRIVALS] = np.where(np.isnan(arriving), np.nan, loads)
        return code.follow(state, counts, signals), spread, looked_up

    def _draw(
        self, found: Prediction, state: LearnedState, replicas: Ints, scenario: Ints, rng: np.random.Generator
    ) -> tuple[Ints, Floats]:
        """(counts [batch, services, 4], signals [batch, services, 6]), readings missing as often as they were."""
        counts = code.counted(state, replicas, _drawn(found.change, rng), _drawn(found.pending, rng))
        levels = _drawn(found.levels, rng)
        signals = np.take_along_axis(self.levels.values[None], levels[..., None], axis=-1)[..., 0]
        rate = np.array([self.header.missing[name] for name in self.header.scenarios])[scenario]
        signals[rng.random(replicas.shape) < rate[:, None]] = np.nan
        unready = counts[..., code.READY] == 0
        signals[unready, code.LATENCY] = np.nan
        signals[unready, code.CPU] = np.nan
        return counts, signals


def digests(parts: NDArray[np.int16]) -> NDArray[np.uint64]:
    """64 bits for each row."""
    rows = np.ascontiguousarray(parts)
    found = [int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "big") for row in rows]
    return np.array(found, np.uint64)


def table(recorded: RecordedSteps) -> dict[str, NDArray[Any]]:
    """The look-up's arrays."""
    keys = digests(code.key_parts(recorded.state, recorded.replicas, recorded.loads, recorded.scenario))
    order = np.argsort(keys, kind="stable")
    return {
        "keys": keys[order],
        "after_counts": recorded.counts[order].astype(np.int32),
        "after_signals": recorded.signals[order].astype(np.float32),
    }


def encode(twin: LearnedTwin) -> bytes:
    """The file's bytes."""
    out = io.BytesIO()
    text = np.frombuffer(msgspec.json.encode(twin.header, order="deterministic"), np.uint8)
    np.savez_compressed(out, allow_pickle=False, **{HEADER: text}, **twin.arrays)
    return out.getvalue()


def decode(data: bytes, name: str, *, mode: TwinMode = TwinMode.HYBRID) -> LearnedTwin:
    """The twin in a file. ``ConfigError``: it is none, or its arrays do not fit each other."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(info.file_size for info in archive.infolist()) > MAX_BYTES:
                raise ConfigError(f"{name}: more than {MAX_BYTES} bytes; {REMEDY}")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        header = msgspec.json.decode(arrays.pop(HEADER).tobytes(), type=Header)
    except (
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        OSError,
        KeyError,
        ValueError,
        EOFError,
        NotImplementedError,
    ) as error:
        raise ConfigError(f"{name}: not a learned twin ({str(error)[:120]}); {REMEDY}") from None
    _check(header, arrays, name)
    return LearnedTwin(header, arrays, mode=mode)


def _check(header: Header, arrays: Arrays, name: str) -> None:
    services, signals = len(header.services), len(code.SIGNALS)
    if header.schema != SCHEMA:
        raise ConfigError(f"{name}: schema {header.schema} is not {SCHEMA}; {REMEDY}")
    inputs = 4 * code.OF_SERVICE + len(header.entries) + services + len(header.scenarios)
    rows, starts = len(arrays.get("keys", ())), len(arrays.get("start_scenario", ()))
    wanted: dict[str, tuple[int, ...]] = {
        "usual": (services,), "cores": (services,), "most": (services,),
        "calls": (services, services), "shift": (inputs,), "scale": (inputs,),
        "edges": (services, signals, code.LEVELS - 1), "values": (services, signals, code.LEVELS), "keys": (rows,),
        "after_counts": (rows, services, 4), "after_signals": (rows, services, signals),
        "start_counts": (starts, services, 4), "start_signals": (starts, services, signals),
        "start_scenario": (starts,),
    }  # fmt: skip
    width = inputs
    for at in range(header.layers):
        bias = arrays.get(f"l{at}.b")
        out = code.OUTPUTS if at + 1 == header.layers else (bias.shape[-1] if bias is not None else 0)
        wanted |= {f"l{at}.w": (header.members, width, out), f"l{at}.b": (header.members, out)}
        width = out
    for key, shape in wanted.items():
        found = arrays.get(key)
        if found is None or found.shape != shape:
            told = "missing" if found is None else f"{found.shape}"
            raise ConfigError(f"{name}: array {key} is {told}, {shape} is wanted; {REMEDY}")
        finite = key in ("after_signals", "start_signals") or found.dtype.kind in "ui" or np.isfinite(found).all()
        if found.dtype.kind not in "uif" or not finite:
            raise ConfigError(f"{name}: array {key} holds what is no finite number; {REMEDY}")
    if not set(header.entries) <= set(header.services) or math.isnan(header.step_s) or header.step_s <= 0:
        raise ConfigError(f"{name}: its header contradicts itself; {REMEDY}")


def _softmax(logits: NDArray[np.float32]) -> Floats:
    shifted = np.exp((logits - logits.max(axis=-1, keepdims=True)).astype(np.float64))
    found: Floats = shifted / shifted.sum(axis=-1, keepdims=True)
    return found


def _drawn(shares: Floats, rng: np.random.Generator) -> Ints:
    """One class of each last axis, by its probabilities."""
    draws = rng.random((*shares.shape[:-1], 1))
    found: Ints = np.minimum((shares.cumsum(axis=-1) < draws).sum(axis=-1), shares.shape[-1] - 1)
    return found
