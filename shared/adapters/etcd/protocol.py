"""etcd's messages and methods out of the ``etcd3`` package, on any protobuf from 5 to 7, without importing it.

Why: etcd3 0.12.0 carries the complete etcd v3 protocol, but its generated modules build descriptors by hand, which
protobuf >= 4 refuses ("Descriptors cannot be created directly"). The same modules hold the serialized descriptors as
plain literals, so this file reads those literals with ``ast`` (nothing of the package is executed), puts them into a
*private* descriptor pool, and derives message classes and method paths from there. The private pool keeps clear of
every other package that defines ``mvccpb.KeyValue`` in the process-wide one.

The only I/O is reading three source files once; ``channel.py`` talks to etcd.

How the range of versions was tested: ``tests/contract/test_etcd_protocol.py`` runs on the installed protobuf; its
``PROBE`` also ran in a throw-away environment with protobuf 5.29.5, grpcio 1.66.0 and ``etcd3==0.12.0`` installed with
``--no-deps`` (ADR 0004).
"""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from shared.errors import ConfigError

_FILES = ("kv", "auth", "rpc")
"""In order of dependency: rpc.proto imports the other two."""


_LITERAL = re.compile(r"serialized_pb=_b\(('(?:[^'\\]|\\.)*')\)")


class Method(Struct, frozen=True):
    """One RPC: its HTTP/2 path and its message classes."""

    path: str
    request: Any
    response: Any


class EtcdProtocol(Struct, frozen=True):
    """The message classes and methods that ``store.py`` uses. Messages have no types of their own: ``Any``."""

    range: Method
    txn: Method
    compact: Method
    grant: Method
    revoke: Method
    keep_alive: Method
    watch: Method
    compare: Any
    request_op: Any
    watch_create: Any
    event: Any


def _literal_descriptor(path: Path) -> bytes:
    """The ``serialized_pb`` literal of the one ``FileDescriptor(...)`` call in a generated module.

    Only the literal is parsed: an ast of the whole 180 KB would leave 6 MB of heap behind in every process.
    """
    literal = _LITERAL.search(path.read_text(encoding="utf-8"))
    if literal is not None:
        # serialized_pb=_b('...'): the text holds one byte per character.
        text = ast.literal_eval(literal[1])
        if isinstance(text, str):
            return text.encode("latin1")
    raise ConfigError(f"etcd3: no serialized descriptor in {path.name}; Conclave needs etcd3==0.12.0")


def _package_folder() -> Path:
    # find_spec of a top-level package locates it without running it; of a submodule it would import the parent.
    spec = importlib.util.find_spec("etcd3")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("etcd3: not installed; Conclave needs etcd3==0.12.0 for etcd's message definitions")
    return Path(next(iter(spec.submodule_search_locations))) / "etcdrpc"


@cache
def _pool() -> Any:
    """The descriptors, read once per process (about 50 ms)."""
    from google.protobuf import descriptor_pool

    folder = _package_folder()
    pool = descriptor_pool.DescriptorPool()
    for name in _FILES:
        pool.AddSerializedFile(_literal_descriptor(folder / f"{name}_pb2.py"))
    return pool


@cache
def method(service: str, name: str) -> Method:
    """One RPC by name, such as ``Auth``, ``UserAdd``. Refused: ``ConfigError`` when etcd3 is not usable."""
    from google.protobuf import message_factory

    descriptor = _pool().FindServiceByName(f"etcdserverpb.{service}").FindMethodByName(name)
    return Method(
        path=f"/etcdserverpb.{service}/{name}",
        request=message_factory.GetMessageClass(descriptor.input_type),
        response=message_factory.GetMessageClass(descriptor.output_type),
    )


_STATUS = (
    ("version", 2, "STRING"), ("db_size", 3, "INT64"), ("errors", 8, "STRING"), ("db_size_in_use", 9, "INT64"),
    ("db_size_quota", 12, "INT64"),
)  # fmt: skip
"""Of ``StatusResponse``, by number: errors and what is in use since 3.4, the quota since 3.6; etcd3's definitions are
older."""


@cache
def status() -> Method:
    """``Maintenance.Status`` with an answer that holds what newer releases say: ``_STATUS`` and ``header.revision``."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="conclave/etcd_status.proto", package="conclave", syntax="proto3")
    header = file.message_type.add(name="Header")
    for name, number in (("cluster_id", 1), ("member_id", 2)):
        header.field.add(name=name, number=number, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    header.field.add(name="revision", number=3, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    answer = file.message_type.add(name="Status")
    answer.field.add(
        name="header", number=1, type=kinds.TYPE_MESSAGE, type_name=".conclave.Header", label=kinds.LABEL_OPTIONAL
    )
    for name, number, kind in _STATUS:
        label = kinds.LABEL_REPEATED if name == "errors" else kinds.LABEL_OPTIONAL
        answer.field.add(name=name, number=number, type=getattr(kinds, f"TYPE_{kind}"), label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    asked = method("Maintenance", "Status")
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName("conclave.Status"))
    return Method(asked.path, asked.request, found)


@cache
def load() -> EtcdProtocol:
    """What the store uses. Refused: ``ConfigError`` when etcd3 is not usable."""
    from google.protobuf import message_factory

    def message(full_name: str) -> Any:
        return message_factory.GetMessageClass(_pool().FindMessageTypeByName(full_name))

    return EtcdProtocol(
        range=method("KV", "Range"),
        txn=method("KV", "Txn"),
        compact=method("KV", "Compact"),
        grant=method("Lease", "LeaseGrant"),
        revoke=method("Lease", "LeaseRevoke"),
        keep_alive=method("Lease", "LeaseKeepAlive"),
        watch=method("Watch", "Watch"),
        compare=message("etcdserverpb.Compare"),
        request_op=message("etcdserverpb.RequestOp"),
        watch_create=message("etcdserverpb.WatchCreateRequest"),
        event=message("mvccpb.Event"),
    )
