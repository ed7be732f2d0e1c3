"""What ``up`` and ``demo`` ask alike: how many processes, whether a learner runs, and where a run keeps its logs, keys
and private etcd.

That is a temporary folder that goes with it, or one that is asked for. A temporary one stays behind only when somebody
is told to look into it.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from services.cli.houses import check_installed, missing
from services.cli.local.run import LEARNER
from shared.errors import ConfigError

MAX_PROCESSES = 64
COUNT = click.IntRange(1, MAX_PROCESSES)


class StateDir:
    """The folder of one run. ``wanted`` True: it stays."""

    def __init__(self, path: Path, *, wanted: bool) -> None:
        self.path = path
        self.wanted = wanted


@contextmanager
def state_dir(command: str, keep: Path | None) -> Iterator[StateDir]:
    """A folder for one run of ``command``. ``ConfigError``: ``keep`` is not empty or cannot be made."""
    folder = StateDir(_make(command, keep), wanted=keep is not None)
    try:
        yield folder
    except ConfigError as error:
        folder.wanted = folder.wanted or str(folder.path) in str(error)
        raise
    finally:
        if not folder.wanted:
            shutil.rmtree(folder.path, ignore_errors=True)


def _make(command: str, keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix=f"conclave-{command}-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise ConfigError(f"--keep: {keep} is not empty; give a new folder")
    except OSError as error:
        raise ConfigError(f"--keep: {keep}: {error.strerror}; give a folder that can be made") from None
    return keep.absolute()


def wants_learner(policy: str, asked: bool | None) -> bool:
    """Whether a learner runs. ``ConfigError``: it was asked for and cannot."""
    from shared.policy.registry import LEARNED

    has_torch = importlib.util.find_spec("torch") is not None
    if not asked:
        return asked is None and policy in LEARNED and has_torch and missing(LEARNER) is None
    if policy not in LEARNED:
        raise ConfigError(f"--learner: {policy} is a heuristic; choose a learned --policy: {', '.join(LEARNED)}")
    check_installed(LEARNER, "--learner")
    if not has_torch:
        raise ConfigError("--learner: torch is missing; install the extra: pip install 'conclave-scheduler[learn]'")
    return True
