"""Electors, one etcd and the network between them in virtual time; every delay, loss and clock is the test's choice."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from shared.election.elector import Elector, ElectorPhase, ElectorState
from shared.election.events import (
    Claimed,
    ClaimKey,
    Elected,
    ElectionTick,
    Event,
    Failed,
    Granted,
    GrantLease,
    KeySeen,
    LeaderChanged,
    LeaderRead,
    LeftoverRemoved,
    ReadLeader,
    RemoveLeftover,
    Renew,
    Renewed,
    Request,
    Revoked,
    Start,
    StopLeading,
)
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord
from shared.errors import StoreRejected
from shared.ports import CreateRevisionIs, DeleteKey, KeyValue, Put
from tests.memory_etcd import MemoryEtcd

KEY = "/conclave/v1/coordinator/leader"


@dataclass(eq=False)
class Message:
    """A request on its way to etcd, or (``reply`` set) an answer on its way back."""

    node: Node
    request: Request
    sent_at: float
    reply: Event | None = None


@dataclass(eq=False)
class Node:
    """One candidate with a clock of its own: ``offset + rate * true time``."""

    world: World
    identity: str
    rate: float = 1.0
    offset: float = 0.0
    incarnation: int = 0
    paused: bool = False
    main_alive: bool = True
    yields: bool = False
    elector: Elector = field(init=False)
    state: ElectorState = field(default_factory=ElectorState)
    watched_up_to: int = 0
    heard: list[Elected | StopLeading] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.boot()

    def boot(self) -> None:
        """A new process in the same place; whatever it had sent is still on its way."""
        self.incarnation += 1
        record = LeaderRecord(identity=self.identity, incarnation=f"{self.identity}{self.incarnation}")
        self.elector = Elector(self.world.settings, record, self.yields)
        self.state, self.heard, self.watched_up_to = ElectorState(), [], self.world.etcd.revision
        self.paused, self.main_alive = False, True
        self.handle(Start())

    @property
    def now(self) -> float:
        return self.offset + self.rate * self.world.true_s

    def is_valid(self) -> bool:
        return self.state.is_valid(self.now)

    def handle(self, event: Event) -> None:
        self.state, instructions = self.elector.step(self.state, event, self.now)
        assert list(self.state.validate()) == []
        for instruction in instructions:
            match instruction:
                case Elected() | StopLeading():
                    self.heard.append(instruction)
                case LeaderChanged():
                    pass
                case _:
                    self.world.wire.append(Message(self, instruction, self.now))


class World:
    """``true_s`` is true time; etcd's clock runs at ``etcd_rate``."""

    def __init__(
        self, settings: LeaseSettings | None = None, *, etcd_rate: float = 1.0, count_from_reply: bool = False
    ) -> None:
        self.settings = settings or LeaseSettings()
        self.true_s = 0.0
        self.etcd = MemoryEtcd(clock=lambda: etcd_rate * self.true_s)
        self.nodes: list[Node] = []
        self.wire: list[Message] = []
        self.terms: list[int] = []
        self.count_from_reply = count_from_reply

    def add(self, identity: str, *, yields: bool = False, **clock: float) -> Node:
        node = Node(self, identity, yields=yields, **clock)
        self.nodes.append(node)
        return node

    def advance(self, seconds: float) -> None:
        self.true_s += seconds
        self.etcd.tick()
        self.check()
        for node in self.nodes:
            if not node.paused and (node.state.wake_at <= node.now or node.main_alive != node.state.main_alive):
                node.handle(ElectionTick(main_alive=node.main_alive))
        self.check()

    def arrive(self, message: Message) -> None:
        """The request reaches etcd; its answer sets out."""
        message.reply = self._serve(message)

    def answer(self, message: Message) -> None:
        """The answer reaches the candidate."""
        self.wire.remove(message)
        assert message.reply is not None
        reply = message.reply
        if self.count_from_reply and isinstance(reply, Granted | Renewed):
            reply = replace(reply, sent_at=message.node.now)
        if not message.node.paused:
            message.node.handle(reply)
        self.check()

    def time_out(self, message: Message, *, arrives_later: bool) -> None:
        """The candidate gives up; the request may still reach etcd."""
        if not arrives_later or message.reply is not None:
            self.wire.remove(message)
        message.node.handle(Failed(message.request.request, unknown=True))
        self.check()

    def watch(self, node: Node) -> None:
        """The next change of the key reaches the candidate's watch."""
        batch = self.etcd.read_history(KEY, node.watched_up_to + 1)
        if batch is not None and not node.paused:
            node.watched_up_to = batch.revision
            for event in batch.events:
                node.handle(KeySeen(event.kv, event.deleted))
        self.check()

    def settle(self, *nodes: Node) -> None:
        """Everything of these candidates (default: all) arrives and is answered at once."""
        chosen = nodes or tuple(self.nodes)
        for _ in range(200):
            for message in [message for message in self.wire if message.node in chosen]:
                if message.reply is None:
                    self.arrive(message)
                self.answer(message)
            for node in chosen:
                self.watch(node)
            if not any(message.node in chosen for message in self.wire):
                return
        raise AssertionError("the election does not come to rest")

    def run(self, seconds: float, *nodes: Node, step_s: float = 0.05) -> None:
        for _ in range(round(seconds / step_s)):
            self.advance(step_s)
            self.settle(*nodes)

    def check(self) -> None:
        """I1, I3 and I4 of the elector, over all candidates."""
        valid = [node for node in self.nodes if node.is_valid()]
        assert len(valid) <= 1, f"two valid leaders at {self.true_s}: {[node.identity for node in valid]}"
        for node in self.nodes:
            kinds = [type(heard) for heard in node.heard]
            assert kinds == [Elected, StopLeading] * (len(kinds) // 2) + [Elected] * (len(kinds) % 2), kinds
            for heard in node.heard:
                if isinstance(heard, Elected) and heard.term not in self.terms:
                    assert not self.terms or heard.term > self.terms[-1], "a term did not grow"
                    self.terms.append(heard.term)

    def _serve(self, message: Message) -> Event:
        request, number = message.request, message.request.request
        sent_at = message.sent_at
        try:
            match request:
                case GrantLease():
                    grant = self.etcd.grant_lease(request.ttl_s)
                    return Granted(number, grant.lease_id, grant.ttl_s, sent_at)
                case ClaimKey():
                    result = self.etcd.txn([CreateRevisionIs(KEY, 0)], [Put(KEY, request.value, request.lease_id)])
                    return Claimed(number, result.succeeded, result.revision)
                case ReadLeader():
                    listing = self.etcd.list_prefix(KEY)
                    return LeaderRead(number, listing.items[0] if listing.items else None, listing.revision)
                case RemoveLeftover():
                    result = self.etcd.txn([CreateRevisionIs(KEY, request.term)], [DeleteKey(KEY)])
                    return LeftoverRemoved(number, result.succeeded)
                case Renew():
                    return Renewed(number, self.etcd.keep_alive(request.lease_id), sent_at)
                case _:
                    self.etcd.revoke_lease(request.lease_id)
                    return Revoked(number)
        except StoreRejected:
            return Failed(number, unknown=False)


def key_value(world: World) -> KeyValue | None:
    return world.etcd.get(KEY)


__all__ = ["KEY", "ElectorPhase", "Message", "Node", "World", "key_value"]
