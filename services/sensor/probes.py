"""The sensor's second thread: probes and their answers by UDP, attempts of targets by TCP, and the kubelet's question.

One loop over all sockets; it sleeps until something comes or is due. What is probed when, and what an answer means, is
``shared/agent``'s, as in an agent on its node. ``lock`` guards that state: the first thread reads it for its reports
and puts in what the leader says. Names of targets are resolved by a third thread, since the system's resolver blocks.
"""

from __future__ import annotations

import errno
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from services.sensor.log import SensorLog
from shared.adapters.http.sockets import bound_socket
from shared.agent.echo import Address
from shared.agent.probing import Probing
from shared.agent.target_times import TargetTimes
from shared.wire.readings import ProbeTarget

TIMEOUT_S = 3.0
AT_ONCE = 4
RESOLVED_S = 60.0
KEPT_S = 300.0
"""How long a target stays where it was last known to be while nobody answers for its name."""
LONGEST_S = 1.0
"""A sleep at most: the first thread may have put in something that is due sooner."""
MOST_ASKING = 8
ASKED_S = 5.0
MAPPED = "::ffff:"
DATAGRAM = 512

Resolved = tuple[int, Any]
"""Family, address."""


class _Attempt:
    """A connection to a target under way."""

    __slots__ = ("began_s", "made", "target")

    def __init__(self, target: ProbeTarget, made: socket.socket, began_s: float) -> None:
        self.target = target
        self.made = made
        self.began_s = began_s


class Names:
    """Addresses of targets by host and port; asked for anew each minute, by ``run`` in a thread of its own."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wanted: frozenset[tuple[str, int]] = frozenset()
        self._found: dict[tuple[str, int], tuple[float, Resolved | None]] = {}
        self._news = threading.Event()

    def want(self, targets: Iterable[ProbeTarget]) -> None:
        """These and no others."""
        wanted = frozenset((target.host, target.port) for target in targets)
        if wanted != self._wanted:
            self._wanted = wanted
            self._news.set()

    def find(self, target: ProbeTarget) -> Resolved | None:
        """Where the target is; None: not known."""
        known = self._found.get((target.host, target.port))
        return known[1] if known is not None else None

    def run(self, stopping: threading.Event) -> None:
        """Until ``stopping``."""
        while not stopping.is_set():
            self._news.wait(RESOLVED_S / 4 if self._wanted else None)
            self._news.clear()
            self.resolve()

    def stop(self) -> None:
        """Let ``run`` see that it is to end."""
        self._news.set()

    def resolve(self) -> None:
        """Ask for what is not known, or no longer: first for what was never asked for, last for what is known. Other
        targets meanwhile begin another round."""
        wanted, now = self._wanted, self._clock()
        self._found = {place: known for place, known in self._found.items() if place in wanted}
        for host, port in sorted(wanted, key=self._turn):
            if self._wanted is not wanted:
                return
            known = self._found.get((host, port))
            if known is not None and known[1] is not None and now - known[0] < RESOLVED_S:
                continue
            try:
                family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
                self._found[host, port] = (now, (int(family), address))
            except (OSError, UnicodeError):
                if known is None or known[1] is None or now - known[0] >= KEPT_S:
                    self._found[host, port] = (now, None)

    def _turn(self, place: tuple[str, int]) -> tuple[bool, float]:
        known = self._found.get(place)
        return (known[1] is not None, known[0]) if known is not None else (False, -math.inf)


class Probes:
    """``run`` in a thread. ``alive`` says whether the first thread makes progress."""

    def __init__(
        self,
        probing: Probing,
        times: TargetTimes,
        names: Names,
        lock: threading.Lock,
        log: SensorLog,
        *,
        alive: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probing = probing
        self._times = times
        self._names = names
        self._lock = lock
        self._log = log
        self._alive = alive
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._udp: socket.socket | None = None
        self._live: socket.socket | None = None
        self._attempts: dict[socket.socket, _Attempt] = {}
        self._asking: dict[socket.socket, float] = {}

    def listen(self, probe: tuple[str, int] | None, live: tuple[str, int] | None) -> Address | None:
        """Bind the sockets; where probes are answered. ``OSError``: one cannot be bound."""
        if live is not None:
            self._live = bound_socket(*live)
            self._live.listen(MOST_ASKING)
            self._selector.register(self._live, selectors.EVENT_READ, self._admit)
        if probe is None:
            return None
        self._udp = bound_socket(*probe, kind=socket.SOCK_DGRAM)
        self._selector.register(self._udp, selectors.EVENT_READ, self._datagrams)
        bound = self._udp.getsockname()
        return str(bound[0]), int(bound[1])

    @property
    def live_port(self) -> int:
        """Where the kubelet asks; 0: nowhere."""
        return int(self._live.getsockname()[1]) if self._live is not None else 0

    def run(self, stopping: threading.Event) -> None:
        """Until ``stopping``."""
        while not stopping.is_set():
            self.turn()

    def close(self) -> None:
        """Close all sockets."""
        sockets = [*self._attempts, *self._asking, *(one for one in (self._udp, self._live) if one is not None)]
        self._selector.close()
        for one in sockets:
            one.close()

    def turn(self, longest_s: float = LONGEST_S) -> None:
        """Sleep until something comes or is due, and do it."""
        now = self._clock()
        with self._lock:
            dues = [
                due for due in (self._probing.next_s if self._udp else None, self._times.next_s()) if due is not None
            ]
        ends = [one.began_s + TIMEOUT_S for one in self._attempts.values()] + list(self._asking.values())
        if len(self._attempts) < AT_ONCE:
            ends += dues
        wait_s = min([longest_s, *(max(0.001, at - now) for at in ends)])
        for key, _ in self._selector.select(wait_s):
            key.data(key.fileobj)
        now = self._clock()
        self._send_due(now)
        self._expire(now)
        self._try_due(now)

    def _datagrams(self, udp: socket.socket) -> None:
        for _ in range(64):
            try:
                data, source = udp.recvfrom(DATAGRAM)
            except BlockingIOError:
                return
            except OSError:  # ICMP says that nobody listens where we probed: the probe stays open
                continue
            now = self._clock()
            at: Address = (str(source[0]).partition("%")[0].removeprefix(MAPPED), int(source[1]))
            with self._lock:
                back = self._probing.received(data, at, now)
            if back is not None:
                self._send(*back)

    def _send_due(self, now: float) -> None:
        if self._udp is None:
            return
        with self._lock:
            due = self._probing.due(now)
        for peer, datagram in due:
            self._send(peer, datagram)

    def _send(self, peer: Address, datagram: bytes) -> None:
        assert self._udp is not None
        mapped = self._udp.family == socket.AF_INET6 and ":" not in peer[0]
        try:
            self._udp.sendto(datagram, (MAPPED + peer[0] if mapped else peer[0], peer[1]))
        except OSError as error:  # no route, an address of another family
            self._log.tell("debug", "probe_unsent", error=str(error))

    def _try_due(self, now: float) -> None:
        while len(self._attempts) < AT_ONCE:
            with self._lock:
                due = self._times.due(now, most=AT_ONCE - len(self._attempts))
            if not due:
                return
            for target in due:
                self._try(target)

    def _try(self, target: ProbeTarget) -> None:
        found = self._names.find(target)
        if found is None:
            self._failed(target)
            return
        family, address = found
        try:
            made = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            self._failed(target)
            return
        made.setblocking(False)
        attempt = _Attempt(target, made, self._clock())
        code = made.connect_ex(address)
        if code == 0:
            self._ended(attempt, self._clock() - attempt.began_s)
        elif code == errno.EINPROGRESS:
            self._attempts[made] = attempt
            self._selector.register(made, selectors.EVENT_WRITE, self._connected)
        else:
            self._ended(attempt, None)

    def _connected(self, made: socket.socket) -> None:
        took_s = self._clock() - self._attempts[made].began_s
        self._ended(self._attempts[made], took_s if made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 else None)

    def _ended(self, attempt: _Attempt, took_s: float | None) -> None:
        if self._attempts.pop(attempt.made, None) is not None:
            self._selector.unregister(attempt.made)
        attempt.made.close()
        if took_s is None:
            self._failed(attempt.target)
            return
        with self._lock:
            self._times.answered(attempt.target.name, took_s, self._clock())

    def _failed(self, target: ProbeTarget) -> None:
        with self._lock:
            self._times.failed(target.name)

    def _expire(self, now: float) -> None:
        for attempt in [one for one in self._attempts.values() if now - one.began_s >= TIMEOUT_S]:
            self._ended(attempt, None)
        for asking in [one for one, until in self._asking.items() if now >= until]:
            self._leave(asking)

    def _admit(self, live: socket.socket) -> None:
        try:
            asking, _ = live.accept()
        except OSError:
            return
        if len(self._asking) >= MOST_ASKING:
            asking.close()
            return
        asking.setblocking(False)
        self._asking[asking] = self._clock() + ASKED_S
        self._selector.register(asking, selectors.EVENT_READ, self._answer)

    def _answer(self, asking: socket.socket) -> None:
        """Whatever was asked: well, or not."""
        text = b"200 OK" if self._alive() else b"503 Service Unavailable"
        try:
            if asking.recv(4096):
                asking.send(b"HTTP/1.1 " + text + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        except OSError:
            pass
        self._leave(asking)

    def _leave(self, asking: socket.socket) -> None:
        del self._asking[asking]
        self._selector.unregister(asking)
        asking.close()


def nonce() -> bytes:
    """Of a probe: nobody can foresee it."""
    return os.urandom(16)
