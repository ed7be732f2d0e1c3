"""Network namespaces joined by wires whose delays are ours to choose: real stacks, packets held in this process.

Each namespace has one TUN device; what it sends comes here and is written to the receiver's device later. It does what
``tc netem`` does, on kernels without that module too. Needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN) and /dev/net/tun; where
these are missing, ``unavailable`` says so in one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
WORLD = "10.77.0.1"
"""This process's own address while it is inside."""
_libc = ctypes.CDLL(None, use_errno=True)


def unavailable() -> str:
    """Why namespaces cannot be made here; "" where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    for tool in ("ip", "nsenter", "unshare"):
        if not any((Path(folder) / tool).exists() for folder in os.environ.get("PATH", "").split(":")):
            return f"{tool} is not on PATH"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "network namespaces are not allowed here"


class DelayedNet:
    """``with`` moves this thread into a namespace of its own, with address ``WORLD``; ``host`` makes another one."""

    def __init__(self, *, default_s: float = 0.0002) -> None:
        self.delays: dict[frozenset[str], float] = {}
        """One-way seconds between two addresses."""
        self._default_s = default_s
        self._devices: dict[bytes, int] = {}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> DelayedNet:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._stack.callback(os.close, home)
        _checked(_libc.unshare(CLONE_NEWNET))
        self._stack.callback(_enter, home)
        self._device(WORLD)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for device in self._devices.values():
            loop.remove_reader(device)
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        self._stack.close()

    def host(self, address: str) -> list[str]:
        """A namespace with this address; what to put before a command that is to run in it."""
        holder = self._holders[address] = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        theirs = Path(f"/proc/{holder.pid}/ns/net")
        ours = Path("/proc/thread-self/ns/net").stat().st_ino
        while theirs.stat().st_ino == ours:  # until it has left ours
            os.sched_yield()
        with _inside(theirs):
            self._device(address)
        return ["nsenter", f"--net={theirs}", "--"]

    def between(self, one: str, other: str, round_trip_s: float) -> None:
        """From now on."""
        self.delays[frozenset((one, other))] = round_trip_s / 2

    def _device(self, address: str) -> None:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self._stack.callback(os.close, device)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", b"wire0", IFF_TUN | IFF_NO_PI))
        for words in ("link set lo up", f"address add {address}/24 dev wire0", "link set wire0 up"):
            subprocess.run(["ip", *words.split()], check=True)
        self._devices[socket.inet_aton(address)] = device
        asyncio.get_running_loop().add_reader(device, self._forward, device)

    def _forward(self, device: int) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(BlockingIOError):
            while packet := os.read(device, 4096):
                source, target = packet[12:16], packet[16:20]
                out = self._devices.get(target)
                if packet[0] >> 4 == 4 and out is not None:
                    pair = frozenset((socket.inet_ntoa(source), socket.inet_ntoa(target)))
                    loop.call_later(self.delays.get(pair, self._default_s), _send, out, packet)


def _send(device: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # full, or already closed: a packet is lost, as packets are
        os.write(device, packet)


@contextlib.contextmanager
def _inside(namespace: Path) -> Iterator[None]:
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(namespace, os.O_RDONLY)
    try:
        _enter(there)
        yield
    finally:
        _enter(home)
        os.close(there)
        os.close(home)


def _enter(namespace: int) -> None:
    _checked(_libc.setns(namespace, CLONE_NEWNET))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
