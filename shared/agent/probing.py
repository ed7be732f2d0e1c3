"""Who is probed when, what an answer changes, and what is answered: one agent's part of the probing. Pure.

    peers named by the coordinator --> neighbours <-- peers named in answers (gossip: of those that answered)
    due(now): at most ``per_s`` probes a second, to neighbours in turn of chance
    received(datagram): a probe --> an answer, within a rate;  an answer to an open probe --> a sample --> coordinate

So N nodes cost a few probes each, not N². Nothing is learned from a probe: whoever asks cannot move us. An answer
counts once, from the address that was asked, while its probe is open. A probe is answered once, where it was meant to
go, to whom it says it is from: one that was recorded makes nobody answer, and nobody be answered. What was answered
is remembered as long as its key lasts (the leader makes a new one each minute), up to a bound beyond which that key
is answered no more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shared.agent.echo import NOWHERE, PEERS, Address, EchoAnswer, Probe, answer, may_be_probed, probe, read
from shared.agent.vivaldi import Coordinate, Vivaldi, VivaldiRng

Datagram = tuple[Address, bytes]


@dataclass(frozen=True, slots=True)
class ProbingSettings:
    """Bounds: nothing here grows with what arrives."""

    per_s: float = 3.0
    """Probes sent per second at most."""
    neighbours: int = 32
    open_s: float = 2.0
    """An answer after that comes too late."""
    failures: int = 4
    """Probes in a row without a believable answer after which a neighbour is let go."""
    answers_per_s: float = 64.0
    reads_per_s: float = 2000.0
    """Datagrams whose signature is looked at: each costs some 5 us."""
    remembered: int = 16_384
    """Probes of a key that are answered, each once; more than ``answers_per_s`` lets through in three minutes."""


@dataclass(slots=True)
class Counts:
    """What came of datagrams since the start."""

    sent: int = 0
    answered: int = 0
    """Probes of ours that got an answer."""
    served: int = 0
    """Probes of others that we answered."""
    forged: int = 0
    """Datagrams that nobody with a key has made."""
    stray: int = 0
    """Answers that nobody waits for: late, told twice, or from elsewhere."""
    limited: int = 0
    misled: int = 0
    """Probes that were meant for another, or came from elsewhere than they say."""
    replayed: int = 0
    """Probes that were answered before."""
    unbelievable: int = 0
    """Answers whose figures cannot be."""


class Bucket:
    """A rate with a burst of two seconds of it."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._left = 2 * per_s
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        """Whether one more is within the rate; counts it if so."""
        self._left = min(2 * self._per_s, self._left + max(0.0, now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Probing:
    """One agent's. ``nonce()``: 16 fresh random bytes that nobody can foresee; ``here``: its own address."""

    def __init__(
        self,
        rng: VivaldiRng,
        nonce: Callable[[], bytes],
        *,
        here: Address = NOWHERE,
        settings: ProbingSettings | None = None,
    ) -> None:
        self.settings = settings or ProbingSettings()
        self.vivaldi = Vivaldi(rng)
        self.counts = Counts()
        self.here = here
        self._rng = rng
        self._nonce = nonce
        self._keys: tuple[bytes, ...] = ()
        self._served: dict[bytes, set[bytes]] = {}
        """Nonces that were answered, by key."""
        self._neighbours: dict[Address, int] = {}
        """Probes without a believable answer since the last one that had one."""
        self._open: OrderedDict[bytes, tuple[Address, float]] = OrderedDict()
        self._next_s = 0.0
        self._answers = Bucket(self.settings.answers_per_s)
        self._reads = Bucket(self.settings.reads_per_s)

    @property
    def coordinate(self) -> Coordinate | None:
        """Where this node stands; None before anybody answered."""
        return self.vivaldi.here if self.vivaldi.samples else None

    @property
    def neighbours(self) -> list[Address]:
        """Whom it probes."""
        return list(self._neighbours)

    @property
    def next_s(self) -> float | None:
        """When the next probe is due; None while there is nobody to probe, or no key."""
        return self._next_s if self._keys and self._neighbours else None

    def use_keys(self, keys: Sequence[bytes]) -> None:
        """The keys that hold from now on, the one to sign with first; others may not have heard of them yet, so the one
        before still opens what they send."""
        if keys and tuple(keys) != self._keys[: len(keys)]:
            self._keys = (*keys, *(key for key in self._keys[:1] if key not in keys))
            self._served = {key: self._served.get(key, set()) for key in self._keys}

    def meet(self, peers: Iterable[Address]) -> None:
        """Addresses that somebody with a key named. Where there is no room, one takes another's place by chance."""
        for peer in peers:
            if peer == self.here or peer in self._neighbours or not may_be_probed(peer):
                continue
            if len(self._neighbours) >= self.settings.neighbours:
                if self._rng.random() < 0.75:
                    continue
                del self._neighbours[self._any()]
            self._neighbours[peer] = 0

    def due(self, now_s: float) -> list[Datagram]:
        """Probes to be sent now; call it at ``next_s`` or later."""
        self._expire(now_s)
        if not self._keys or not self._neighbours or now_s < self._next_s:
            return []
        # up to half as much again, so that agents that began together do not go on together; never sooner
        self._next_s = now_s + (1.0 + 0.5 * self._rng.random()) / self.settings.per_s
        peer, nonce = self._any(), self._nonce()
        self._open[nonce] = (peer, now_s)
        self.counts.sent += 1
        return [(peer, probe(self._keys[0], nonce, self.here, peer))]

    def received(self, datagram: bytes, source: Address, now_s: float, *, held_us: int = 0) -> Datagram | None:
        """Take in a datagram; what is to be sent back, if anything."""
        if not self._keys:
            return None
        if not self._reads.take(now_s):
            self.counts.limited += 1
            return None
        found = read(self._keys, datagram)
        if found is None:
            self.counts.forged += 1
            return None
        said, key = found
        if isinstance(said, Probe):
            return self._serve(said, key, source, now_s, held_us)
        self._heard(said, source, now_s)
        return None

    def _serve(self, asked: Probe, key: bytes, source: Address, now_s: float, held_us: int) -> Datagram | None:
        served = self._served[key]
        if asked.asker != source or asked.asked != self.here:
            self.counts.misled += 1
            return None
        if asked.nonce in served:
            self.counts.replayed += 1
            return None
        if len(served) >= self.settings.remembered or not self._answers.take(now_s):
            self.counts.limited += 1
            return None
        served.add(asked.nonce)
        self.counts.served += 1
        # one that never answered us may be nobody: agents that told each other of it would probe it for ever
        known = [peer for peer in self._neighbours if peer != source and self.vivaldi.known(peer) is not None]
        named = [known.pop(int(self._rng.random() * len(known))) for _ in range(min(PEERS, len(known)))]
        return source, answer(key, asked.nonce, held_us=held_us, coordinate=self.vivaldi.here, peers=named)

    def _heard(self, said: EchoAnswer, source: Address, now_s: float) -> None:
        self._expire(now_s)
        waiting = self._open.get(said.nonce)
        if waiting is None or waiting[0] != source:
            self.counts.stray += 1
            return
        del self._open[said.nonce]
        peer, sent_s = waiting
        rtt_ms = (now_s - sent_s) * 1000
        took_ms = rtt_ms - min(said.held_us / 1000, 0.9 * rtt_ms)
        if not self.vivaldi.take(peer, took_ms, said.coordinate):
            self.counts.unbelievable += 1
            self._failed(peer)
            return
        self.counts.answered += 1
        if peer in self._neighbours:
            self._neighbours[peer] = 0
        self.meet(said.peers)

    def _expire(self, now_s: float) -> None:
        while self._open:
            nonce, (peer, sent_s) = next(iter(self._open.items()))
            if now_s - sent_s < self.settings.open_s:
                return
            del self._open[nonce]
            self._failed(peer)

    def _failed(self, peer: Address) -> None:
        """A probe of the peer told nothing; after so many in a row it is let go."""
        if peer not in self._neighbours:
            return
        self._neighbours[peer] += 1
        if self._neighbours[peer] >= self.settings.failures:
            del self._neighbours[peer]
            self.vivaldi.forget(peer)

    def _any(self) -> Address:
        known = list(self._neighbours)
        return known[int(self._rng.random() * len(known))]
