"""What kube-scheduler and an extender say to each other (``k8s.io/kube-scheduler/extender/v1``), as bytes and values.

    ExtenderArgs --read_question--> pod, names [--filter--> kept, refused] --filtered--> ExtenderFilterResult
                                               [--prioritize--> scores]    --prioritized--> HostPriorityList

Field names are Go's: these types have no JSON tags. An extender with ``nodeCacheCapable: true`` is sent names; else
whole nodes, of which only the name is read here, and which come back as they came. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct, field

from shared.errors import ConclaveError
from shared.kube.objects import KubePod

MAX_PRIORITY = 10
"""extender/v1's MaxExtenderPriority: kube-scheduler multiplies by the extender's weight and 100/10."""


class QuestionInvalid(ConclaveError):
    """What came is no question that can be answered."""

    code = "invalid_request"


class NodeIdentity(Struct, frozen=True):
    name: str = ""


class NodeHead(Struct, frozen=True):
    metadata: NodeIdentity = NodeIdentity()


class NodeItems(Struct, frozen=True):
    """A v1.NodeList; a node is kept as it came."""

    items: list[Raw] | None = None


class ExtenderArgs(Struct, frozen=True, rename="pascal"):
    """``Nodes`` or ``NodeNames``, as the configuration says."""

    pod: KubePod | None = None
    nodes: NodeItems | None = None
    node_names: list[str] | None = None


class ExtenderFilterResult(Struct, frozen=True, rename="pascal", kw_only=True):
    """Which nodes remain; why others do not, those that eviction would not open apart."""

    nodes: NodeItems | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class ExtenderQuestion(Struct, frozen=True):
    """A question. ``whole``: the nodes as they came, where they came whole, in the order of ``names``."""

    pod: KubePod
    names: list[str]
    whole: list[Raw] | None = field(default=None)


_args = msgspec.json.Decoder(ExtenderArgs)
_head = msgspec.json.Decoder(NodeHead)
_encoder = msgspec.json.Encoder()


def read_question(body: bytes) -> ExtenderQuestion:
    """Raises ``QuestionInvalid`` naming the field."""
    try:
        args = _args.decode(body)
        if args.pod is None or not args.pod.metadata.name:
            raise QuestionInvalid("Pod: is missing, or has no name; send ExtenderArgs of extender/v1")
        if args.node_names is not None:
            return ExtenderQuestion(args.pod, args.node_names)
        if args.nodes is None:
            raise QuestionInvalid("Nodes, NodeNames: both are missing; send ExtenderArgs of extender/v1")
        whole = args.nodes.items or []
        return ExtenderQuestion(args.pod, [_head.decode(one).metadata.name for one in whole], whole)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise QuestionInvalid(f"{error}; send ExtenderArgs of extender/v1 as JSON") from None


def filtered(question: ExtenderQuestion, refused: Mapping[str, str]) -> bytes:
    """The answer to ``filter``: ``refused`` by node, each for ever while the node is as it is."""
    if question.whole is None:
        kept = ExtenderFilterResult(
            node_names=[name for name in question.names if name not in refused],
            failed_and_unresolvable_nodes=dict(refused),
        )
    else:
        items = [one for name, one in zip(question.names, question.whole, strict=True) if name not in refused]
        kept = ExtenderFilterResult(nodes=NodeItems(items), failed_and_unresolvable_nodes=dict(refused))
    return _encoder.encode(kept)


def prioritized(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """The answer to ``prioritize``."""
    return _encoder.encode([HostPriority(name, score) for name, score in zip(names, scores, strict=True)])
