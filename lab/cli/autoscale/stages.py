"""Work in stages that may be stopped at any time: a folder, a folder in it for each stage, and a list of what is done.

``stages.json`` has for each stage a digest of what went into it (its own settings and all files of the stages before)
and of each file that came out. A stage whose digests are as they were is not done again; one that was begun with the
same input goes on in its folder; any other begins with an empty one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from services.cli.terminal.output_file import write_whole
from shared.errors import ConfigError

LIST = "stages.json"


class Done(msgspec.Struct, forbid_unknown_fields=True):
    """One stage. ``files`` empty: begun and not ended; ``recorded``: what is in it cannot be made or given again."""

    inputs: str
    files: dict[str, str] = {}
    recorded: bool = False


class StagesFile(msgspec.Struct, forbid_unknown_fields=True):
    """The file. ``title``: whose work it is."""

    title: str
    stages: dict[str, Done] = {}


class Stages:
    """The stages of one folder, in the order in which they are asked for. Make it by ``opened``."""

    def __init__(self, folder: Path, title: str, say: Callable[[str], object]) -> None:
        self.folder, self._say = folder, say
        self._listed = _read(folder, title)
        self._before: list[str] = []
        """Digests of the files of all stages so far."""

    def recorded(self, name: str) -> bool:
        """Whether what a stage has was recorded, as far as it got."""
        known = self._listed.stages.get(name)
        return known is not None and known.recorded

    def run(
        self,
        name: str,
        inputs: Mapping[str, Any],
        work: Callable[[Path], Sequence[str]],
        *,
        keep: bool = False,
        recorded: bool = False,
    ) -> Path:
        """The folder of a stage, done. ``work`` gets it and says which files in it are the result; it may raise.
        ``keep``: nothing in it is taken away, whatever else it is made from; ``work`` replaces files whole.
        ``recorded``: noted before it begins."""
        folder = self.folder / name
        digest = _digest(json.dumps([name, dict(inputs), self._before], sort_keys=True).encode())
        known = self._listed.stages.get(name)
        if (
            known is not None
            and known.inputs == digest
            and known.files
            and _digests(folder, known.files) == known.files
        ):
            self._say(f"{name}: done before")
        else:
            again = known is not None and known.inputs == digest and folder.is_dir()
            if not again and not keep:
                shutil.rmtree(folder, ignore_errors=True)
            folder_was = folder.is_dir()
            folder.mkdir(exist_ok=True)
            self._note(name, Done(digest, recorded=recorded))
            self._say(f"{name}: {'goes on' if again or (keep and folder_was) else 'begins'}")
            known = Done(digest, _digests(folder, work(folder)), recorded)
            self._note(name, known)
        self._before.append(json.dumps(known.files, sort_keys=True))
        return folder

    def _note(self, name: str, done: Done) -> None:
        self._listed.stages[name] = done
        write_whole("--out", self.folder / LIST, msgspec.json.format(msgspec.json.encode(self._listed), indent=1))


@contextmanager
def opened(folder: Path, title: str, say: Callable[[str], object]) -> Iterator[Stages]:
    """The stages of a folder, which nobody else works in meanwhile. ``ConfigError``: it cannot be made or written, it
    is somebody else's work, or somebody works in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ConfigError(f"--out: {folder} cannot be made ({error.strerror}); give a folder") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"--out: {folder} is being worked in; wait for it, or give another folder") from None
        yield Stages(folder, title, say)
    except OSError as error:
        raise ConfigError(
            f"--out: {error.filename or folder}: {error.strerror}; make room, then run it again"
        ) from error
    finally:
        os.close(lock)


def _read(folder: Path, title: str) -> StagesFile:
    file = folder / LIST
    if not file.exists():
        if any(folder.iterdir()):
            raise ConfigError(f"--out: {folder} holds other files; give an empty or a new folder")
        return StagesFile(title)
    try:
        found = msgspec.json.decode(file.read_bytes(), type=StagesFile)
    except msgspec.DecodeError as error:
        raise ConfigError(f"--out: {file}: {error}; give another folder") from None
    if found.title != title:
        raise ConfigError(f"--out: {folder} is of {found.title}, not of {title}; give another folder")
    return found


def _digests(folder: Path, names: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    return {name: _digest((folder / name).read_bytes()) if (folder / name).is_file() else "" for name in names}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
