"""One file format for the weights of every learned policy: numpy's ``.npz`` without pickles, and a card inside.

Why: an agent takes weights from etcd, a person from a file, a test from the package. All three must be able to tell,
from the bytes alone, which policy they belong to, how they came about, and that nothing was changed on the way. So the
same arrays and the same card always give the same bytes, and the sha256 of those bytes is the weights' name.

What it refuses, by name and before any policy sees the arrays: another digest than was asked for, a file that is not
such an archive, an unknown schema, another policy's weights, arrays that are missing, extra, of another shape or type,
and values that are NaN, infinite or absurdly large. It does no I/O but reading the files shipped inside this package.

What reads archives and digests is imported where that is done: an agent that decides by a heuristic does neither.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from shared.errors import ConfigError

if TYPE_CHECKING:
    import zipfile

REMEDY = "name the policy that they were made for, or train again"

SCHEMA = 1
"""Version of the file's layout; a file of another one is refused."""

CARD = "__card__"
"""The archive's member that holds the card: its JSON as a uint8 array, so that ``numpy.load`` opens the file too."""

MAX_BYTES = 1_500_000
"""Largest weights file: etcd refuses requests above 1.5 MiB, and the key and transaction need some of that."""

MOST_WEIGHT = 1e4
"""Largest value taken: what is shipped stays below 4. A few layers of larger ones overflow float32 on usual inputs."""

FEW, NAME_CHARS = 4, 40
"""Of a list of names, so many are told, and so much of each."""

MOST_VERSION = 1_000_000_000
"""Largest version taken: later ones are numbered on from it, and every one has to fit into 64 bits."""

TOLD_CHARS = 120
"""Of what a parser says of bytes that are no weights file, so much is told."""

SHIPPED = Path(__file__).with_name("data")
"""The files that come with the package."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""A zip member's smallest date. Every member gets it: the time of writing must not change the digest."""

Shapes = Mapping[str, tuple[int, ...]]
Arrays = Mapping[str, NDArray[np.float32]]


class ClassNetworks(msgspec.Struct, frozen=True):
    """Networks of classes of nodes (``marl.class_networks``), which only policies that know them take: a node whose
    ``label`` has one of ``values`` is judged by the network of that number, from 1 on, any other by the shared one."""

    label: str
    values: dict[str, Annotated[int, msgspec.Meta(ge=1, le=MAX_BYTES)]]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the weights. ``shapes`` may stay empty: ``encode`` fills it from the arrays."""

    policy: str
    version: Annotated[int, msgspec.Meta(ge=0)]
    """Grows by one with each published set of weights of this policy; at least 1."""
    schema: int = SCHEMA
    shapes: dict[str, list[Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]]] = {}
    features: list[str] = []
    """Names of the network's inputs, in order."""
    trained: dict[str, Any] = {}
    """``command``, ``seeds`` and ``data`` that reproduce the weights."""
    figures: dict[str, Any] = {}
    """Measured results, each with its seeds."""
    limits: list[str] = []
    """What the weights were not trained or tested for, a sentence each."""
    mixture: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """Of a mixture of policies: its members and classes (``hybrid.mixture``); no other card has it."""
    envelope: dict[str, tuple[float, float]] | msgspec.UnsetType = msgspec.UNSET
    """Smallest and largest value of each input in training, where the policy's guard goes by them."""
    goal: str | msgspec.UnsetType = msgspec.UNSET
    """What the weights are for, by which a roll-out compares them (``policy.rollout.outcome``); left out: what all
    weights of the policy are for."""
    networks: ClassNetworks | msgspec.UnsetType = msgspec.UNSET
    """Of classes of nodes, where they have networks of their own."""


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """``arrays``: float32 by name (``l0.w`` [in, out], ``l0.b`` [out], ...; see ``networks``), and the card."""

    arrays: Arrays
    card: Card
    sha256: str = field(default="", compare=False)
    """Digest of the bytes it was decoded from; empty when it was made in memory."""

    @property
    def title(self) -> str:
        """``name@version``, as logs, annotations and tables write it."""
        return f"{self.card.policy}@{self.card.version}"


def digest(data: bytes) -> str:
    """The sha256 of a weights file, lower-case hex: its name in etcd and in logs."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def encode(file: WeightsFile) -> bytes:
    """The file's bytes; the same arrays and card give the same bytes. Raises ``ConfigError`` as ``decode`` does."""
    for name, array in file.arrays.items():
        if name == CARD:
            raise ConfigError(f"weights of {file.title}: array name {name!r} is taken by the card; rename the array")
        _check_array(file.card.policy, name, array)
    shapes = {name: list(array.shape) for name, array in file.arrays.items()}
    card = msgspec.structs.replace(file.card, shapes=shapes)
    _check_card(card, card.policy)
    text = msgspec.json.encode(card, order="deterministic")
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        _put(archive, CARD, np.frombuffer(text, np.uint8))
        for name in sorted(file.arrays):
            _put(archive, name, np.ascontiguousarray(file.arrays[name]))
    data = out.getvalue()
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"weights of {file.title}: {len(data)} bytes is more than {MAX_BYTES}, which is what etcd can hold; "
            "make the network smaller"
        )
    return data


def decode(data: bytes, *, policy: str, expect_shapes: Shapes | None = None, sha256: str | None = None) -> WeightsFile:
    """The weights in ``data``, each array read-only.

    ``policy``: whose they must be; ``expect_shapes``: exactly these arrays in these shapes, None: any;
    ``sha256``: the digest they must have. Raises ``ConfigError`` naming what does not fit.
    """
    found = digest(data)
    if sha256 is not None and found != sha256:
        raise ConfigError(f"weights of {policy}: digest is {found}, {sha256} was asked for; fetch the file again")
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"weights of {policy}: {len(data)} bytes is more than {MAX_BYTES}; not a weights file of ours"
        )
    members = _members(data, policy)
    card = _card(members.pop(CARD, None), policy)
    _check_card(card, policy)
    for name, array in members.items():
        _check_array(policy, name, array)
    found_shapes = {name: tuple(array.shape) for name, array in members.items()}
    _compare(policy, found_shapes, {name: tuple(shape) for name, shape in card.shapes.items()}, "its card says")
    if expect_shapes is not None:
        _compare(policy, found_shapes, expect_shapes, "the policy takes")
    return WeightsFile(members, card, found)


def policy_of(data: bytes, name: str) -> str:
    """Whose weights ``data`` holds, by the card alone: ``decode`` checks all else. ``name``: of the file, for errors.

    Raises ``ConfigError`` where there is no card that can be read.
    """
    return _card(_members(data, name).pop(CARD, None), name).policy


def inputs_fault(card: Card, given: Sequence[str]) -> str:
    """How the inputs that the card names differ from those that a policy is ``given``; "": they do not."""
    if card.features == list(given):
        return ""
    unknown = [name[:NAME_CHARS] for name in card.features if name not in given]
    missing = [name for name in given if name not in card.features]
    parts = [
        f"{what}: {', '.join(names[:FEW])}{' and others' if len(names) > FEW else ''}"
        for what, names in (("unknown", unknown), ("missing", missing))
        if names
    ]
    return "; ".join(parts) or "in another order, or one twice"


def shipped(policy: str) -> WeightsFile:
    """The weights that come with the package. Raises ``ConfigError`` when there are none for ``policy``."""
    return decode(shipped_bytes(policy), policy=policy)


def shipped_bytes(policy: str) -> bytes:
    """The bytes of the weights that come with the package. Raises ``ConfigError`` when there are none."""
    file = SHIPPED / f"{policy}.npz"
    if not policy.replace("-", "").isalnum() or not file.is_file():
        known = ", ".join(shipped_names()) or "none"
        raise ConfigError(f"weights of {policy}: none are shipped; choose one of {known}")
    return file.read_bytes()


@lru_cache(maxsize=16)
def shipped_beside(module: str, policy: str) -> WeightsFile:
    """The weights that lie beside a module (its ``__file__``). Raises ``ConfigError`` when there are none."""
    file = Path(module).with_name(f"{policy}.npz")
    if not file.is_file():
        raise ConfigError(f"weights of {policy}: {file} is not there; install it, or choose another policy")
    return decode(file.read_bytes(), policy=policy)


def shipped_names() -> list[str]:
    """The policies whose weights come with the package, sorted."""
    return sorted(file.name.removesuffix(".npz") for file in SHIPPED.glob("*.npz"))


def _put(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    import zipfile

    out = io.BytesIO()
    npy.write_array(out, array, version=(1, 0), allow_pickle=False)
    archive.writestr(zipfile.ZipInfo(f"{name}.npy", EPOCH), out.getvalue())


def _members(data: bytes, policy: str) -> dict[str, NDArray[Any]]:
    """Every array of the archive by name. Members are stored, not deflated, and together no larger than the file: so
    what is read is never more than was sent, though members may overlap."""
    import zipfile

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            for info in infos:
                if info.compress_type != zipfile.ZIP_STORED or not info.filename.endswith(".npy"):
                    raise ConfigError(
                        f"weights of {policy}: member {info.filename[:NAME_CHARS]!r} is not a stored .npy; write the"
                        " file with shared.policy.weights"
                    )
            _check_sizes(infos, len(data))
            return {info.filename.removesuffix(".npy"): _array(archive.read(info)) for info in infos}
    except ConfigError:
        raise
    except Exception as error:  # foreign bytes: zipfile and numpy raise whatever their parsers run into
        raise ConfigError(
            f"weights of {policy}: not a readable .npz file ({_line(error)}); fetch the file again"
        ) from error


def _check_sizes(infos: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Before a member is read. ``ValueError``: they claim more than there is, or two have one name."""
    if any(info.file_size != info.compress_size for info in infos) or sum(info.file_size for info in infos) > size:
        raise ValueError("its members claim more bytes than the file has")
    if len({info.filename for info in infos}) < len(infos):
        raise ValueError("two of its members have one name")


def _line(error: Exception) -> str:
    """What it says, in one short line."""
    return " ".join(str(error).split())[:TOLD_CHARS] or type(error).__name__


def _array(member: bytes) -> NDArray[Any]:
    """A view of the member's values. The header's shape is believed only if exactly so many bytes follow it."""
    stream = io.BytesIO(member)
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("an array of another .npy version than 1.0")
    shape, fortran, dtype = npy.read_array_header_1_0(stream)
    start = stream.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(member) - start:
        raise ValueError("an array of objects, or of another size than its header says")
    flat: NDArray[Any] = np.frombuffer(member, dtype, offset=start)
    return flat.reshape(shape, order="F" if fortran else "C")


def _card(raw: NDArray[Any] | None, policy: str) -> Card:
    if raw is None or raw.dtype != np.uint8:
        raise ConfigError(f"weights of {policy}: no card inside; write the file with shared.policy.weights")
    try:
        schema = msgspec.json.decode(raw.tobytes(), type=_Schema).schema
        if schema != SCHEMA:
            raise ConfigError(
                f"weights of {policy}: schema {schema} is not {SCHEMA}; train again, or use the release that wrote it"
            )
        return msgspec.json.decode(raw.tobytes(), type=Card)
    except ConfigError:
        raise
    except Exception as error:  # foreign bytes again: one that nests too deep is no MsgspecError
        raise ConfigError(
            f"weights of {policy}: the card cannot be read ({_line(error)}); write the file again"
        ) from error


class _Schema(msgspec.Struct):
    schema: int


def _check_card(card: Card, policy: str) -> None:
    if card.policy != policy:
        raise ConfigError(f"weights of {policy}: they belong to policy {card.policy!r}; choose that, or another file")
    if card.version < 1:
        raise ConfigError(f"weights of {policy}: version {card.version} is below 1; number published weights from 1")
    if card.version > MOST_VERSION:
        raise ConfigError(f"weights of {policy}: its version is above {MOST_VERSION}; number published weights from 1")


def _check_array(policy: str, name: str, array: NDArray[Any]) -> None:
    if array.dtype != np.float32:
        raise ConfigError(f"weights of {policy}: array {name!r} is {array.dtype}, not float32; convert it")
    if not np.isfinite(array).all():
        raise ConfigError(f"weights of {policy}: array {name!r} holds NaN or infinite values; train again")
    if array.size and float(np.abs(array).max()) > MOST_WEIGHT:
        raise ConfigError(
            f"weights of {policy}: array {name!r} holds values beyond +-{MOST_WEIGHT:g}, of training that diverged; "
            "train again"
        )


def _compare(policy: str, found: Shapes, wanted: Shapes, who: str) -> None:
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or extra:
        raise ConfigError(
            f"weights of {policy}: arrays missing: {', '.join(missing) or 'none'}; not known: "
            f"{', '.join(extra) or 'none'} ({who} otherwise); {REMEDY}"
        )
    for name in sorted(wanted):
        if found[name] != tuple(wanted[name]):
            raise ConfigError(
                f"weights of {policy}: array {name!r} is {found[name]}, {who} {tuple(wanted[name])}; {REMEDY}"
            )
