"""Archives whose bytes depend on their contents alone: the chart, and what krew installs."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def archive(files: Mapping[str, bytes], *, made_at: int, executable: frozenset[str] = frozenset()) -> bytes:
    """A tar.gz of the files by path. ``made_at``: seconds since 1970 for all of them."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), made_at, 0o755 if name in executable else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=made_at)


def chart_archive(folder: Path, *, made_at: int) -> bytes:
    """The chart as ``helm package`` lays it out: everything below the chart's name."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".digests"]
    return archive({f"conclave/{path.relative_to(folder)}": path.read_bytes() for path in paths}, made_at=made_at)
