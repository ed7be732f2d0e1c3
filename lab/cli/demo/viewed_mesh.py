"""The demo's mesh: with what etcd says of it, which tells whom to kill and who leads while nobody answers."""

from __future__ import annotations

from services.cli.etcd import MeshView, read_mesh
from services.cli.local.mesh import HTTP_TIMEOUT_S, LocalMesh, MeshSettings
from services.cli.local.supervisor import Supervisor
from shared.errors import StoreError
from shared.ports import Store
from shared.wire.keys import Keys


class ViewedMesh(LocalMesh):
    """``view``: as it was at the last ``refresh``."""

    def __init__(self, settings: MeshSettings, supervisor: Supervisor, store: Store) -> None:
        super().__init__(settings, supervisor)
        self.store = store
        self.keys = Keys.under(settings.etcd_prefix)
        self.view = MeshView()

    async def refresh(self) -> MeshView:
        """Look at etcd; the last view where it does not answer."""
        try:
            self.view = await read_mesh(self.store, self.keys, timeout_s=HTTP_TIMEOUT_S)
        except StoreError:
            return self.view
        return self.view
