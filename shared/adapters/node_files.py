"""Reads the kernel's texts about the node, from mounts that may be read-only; nothing is interpreted here.

In a container the node's /proc and /sys are mounted elsewhere (``--host-proc``, ``--host-sys``). Two things differ:
the network counters are those of the first process (``1/net/dev``; ``net/dev`` would be the container's own), and where
the kernel shows no /proc/pressure the root cgroup's files stand in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shared.agent.counters import DISKSTATS, MEMINFO, NETDEV, PRESSURES, STAT, UPTIME, VMSTAT, uptime_of

MOST_BYTES = 4 << 20
"""/proc/stat of 1,024 CPUs and its interrupts is 1 MB."""
SPEEDS_EVERY = 12
"""Link speeds are asked for at each twelfth look: some drivers ask the device."""
AT_ONCE_S = 0.05
"""Texts that were read over as much of the node's time, since we had to wait for a CPU, are not of one moment."""
MOST_TRIES = 5


@dataclass(frozen=True, slots=True)
class NodeFilesRead:
    """``files``: texts by name, as ``counters.parse`` takes them; ``speeds``: Mbit/s of each interface, as written."""

    files: dict[str, str]
    speeds: dict[str, str]


class NodeFiles:
    """``look`` blocks for less than a millisecond on most machines; call it in a thread."""

    def __init__(self, proc: Path, sys: Path, *, network: bool = True) -> None:
        """``network`` False: the interfaces here are not the node's."""
        self._sys = sys
        elsewhere = not proc.samefile("/proc") if proc.exists() else True
        first = proc / "1" / NETDEV
        self._uptime = proc / UPTIME
        self._paths = {
            UPTIME: [self._uptime],
            STAT: [proc / STAT],
            MEMINFO: [proc / MEMINFO],
            VMSTAT: [proc / VMSTAT],
            DISKSTATS: [proc / DISKSTATS],
            NETDEV: [first, proc / NETDEV] if elsewhere else [proc / NETDEV],
        } | {f"pressure/{name}": [proc / "pressure" / name, sys / f"fs/cgroup/{name}.pressure"] for name in PRESSURES}
        if not network:
            del self._paths[NETDEV]
        self._speeds: dict[str, str] = {}
        self._looks = 0

    def look(self) -> NodeFilesRead:
        """What is there now, and the node's clock beside it; what cannot be read is left out. It looks again where that
        was not of one moment."""
        for _ in range(MOST_TRIES):
            files = self._texts()
            before_s, after_s = uptime_of(files.get(UPTIME)), uptime_of(_read(self._uptime))
            if before_s is None or after_s is None or after_s - before_s < AT_ONCE_S:
                break
        if self._looks % SPEEDS_EVERY == 0:
            self._speeds = self._links()
        self._looks += 1
        return NodeFilesRead(files, self._speeds)

    def _texts(self) -> dict[str, str]:
        files = {}
        for name, paths in self._paths.items():
            for path in paths:
                if (text := _read(path)) is not None:
                    files[name] = text
                    break
        return files

    def _links(self) -> dict[str, str]:
        folder = self._sys / "class/net"
        try:
            links = sorted(folder.iterdir())[:512]
        except OSError:
            return {}
        return {link.name: text for link in links if (text := _read(link / "speed")) is not None}


def _read(path: Path) -> str | None:
    """The text; None where it cannot be read (a link that is down answers EINVAL when its speed is read)."""
    try:
        with path.open("rb", buffering=0) as file:
            parts, left = [], MOST_BYTES
            while left > 0 and (part := file.read(min(left, 65536))):
                parts.append(part)
                left -= len(part)
    except OSError:
        return None
    return b"".join(parts).decode("ascii", "replace")
