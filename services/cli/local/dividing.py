"""Writes down what the nodes are divided into, where a mesh is to have other shards than etcd says.

Apart from ``mesh.py`` because it takes a client of etcd: a mesh of one shard that was never divided loads none.
"""

from __future__ import annotations

import datetime as dt

from services.cli.local.mesh import MeshSettings
from shared.errors import Conflict, StoreError
from shared.ports import Store
from shared.runtime.process.process import ProcessSettings, store_opener
from shared.runtime.records.shards import change_shards
from shared.wire.keys import Keys


async def divide(store: Store, settings: MeshSettings, *, term: int | None = None) -> None:
    """As the settings say, also back into one shard; one put, or none where etcd says it already. ``term``: of the
    coordinator that leads; None: nobody does yet."""
    keys, now = Keys.under(settings.etcd_prefix), dt.datetime.now(dt.UTC)
    await change_shards(
        store, keys, settings.shard_names, term=term, by="conclave up", reason="", now=now, unmanned=True
    )


async def divide_anew(settings: MeshSettings, term: int) -> None:
    """While a mesh runs that goes by what an earlier one left. Where etcd does not do it, it is asked again."""
    store = store_opener(ProcessSettings(etcd=tuple(settings.etcd.split(",")), etcd_prefix=settings.etcd_prefix))()
    try:
        await divide(store, settings, term=term)
    except (Conflict, StoreError):
        return
    finally:
        await store.close()
