"""The runtime shim: etcd3's message definitions on the installed protobuf, without importing etcd3.

``PROBE`` runs by itself in any environment that has this checkout on its path, so that the lowest supported
versions can be tried in a throw-away one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shared.adapters.etcd import protocol as etcd_protocol
from shared.errors import ConfigError
from tests.patience import PATIENCE_S

PROBE = """
import sys
from shared.adapters.etcd.protocol import load
protocol = load()
assert load() is protocol
compare = protocol.compare(key=b"k", target=protocol.compare.CREATE, result=protocol.compare.EQUAL, create_revision=7)
sent = protocol.txn.request(compare=[compare], success=[
    protocol.request_op(request_put={"key": b"k", "value": b"v", "lease": 9}),
    protocol.request_op(request_delete_range={"key": b"d"}),
])
read = protocol.txn.request.FromString(sent.SerializeToString())
assert read.compare[0].create_revision == 7
assert read.success[0].request_put.lease == 9
assert read.success[1].request_delete_range.key == b"d"
# A field that etcd3's definitions do not know (a request for progress) passes unharmed.
assert protocol.watch.request.FromString(b"\\x1a\\x00").SerializeToString() == b"\\x1a\\x00"
answer = protocol.watch.response(compact_revision=5, events=[protocol.event(type=protocol.event.DELETE)])
assert protocol.watch.response.FromString(answer.SerializeToString()).events[0].type == protocol.event.DELETE
assert protocol.keep_alive.path == "/etcdserverpb.Lease/LeaseKeepAlive"
assert not [name for name in sys.modules if name.split(".")[0] == "etcd3"], "etcd3 itself was imported"
from google.protobuf import descriptor_pool
try:
    descriptor_pool.Default().FindMessageTypeByName("mvccpb.KeyValue")
except KeyError:
    print("fine")
"""


def test_the_probe_passes_on_the_installed_protobuf():
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.stdout.strip(), done.returncode) == ("fine", 0), done.stderr


def test_without_etcd3_the_error_is_one_line(monkeypatch):
    monkeypatch.setattr(etcd_protocol.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="etcd3: not installed"):
        etcd_protocol._pool.__wrapped__()


def test_an_etcd3_of_another_shape_is_named(tmp_path):
    other = tmp_path / "rpc_pb2.py"
    other.write_text("DESCRIPTOR = make()\n")
    with pytest.raises(ConfigError, match=r"rpc_pb2\.py.*etcd3==0\.12\.0"):
        etcd_protocol._literal_descriptor(other)
