"""The Kubernetes client, connected to an API server that plays a script of answers (``tests.faults.scripted_api``)."""

from __future__ import annotations

import contextlib
from typing import Any

from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.watch import WatchPolicy
from tests.faults.scripted_api import ScriptedApi, StaticAccess

PODS_PATH = "/api/v1/pods"
REVISION_PATH = "/api/v1/namespaces/conclave-asks-for-the-revision/pods"
"""Where the revision of the pods is asked for."""
FAST = WatchPolicy(backoff_s=0.001, max_backoff_s=0.01)


@contextlib.asynccontextmanager
async def client_of(
    api: ScriptedApi, *, policy: WatchPolicy = FAST, access: StaticAccess | None = None, **options: Any
):
    client = KubeClient(access or StaticAccess(api.url), policy=policy, **options)
    try:
        yield client
    finally:
        await client.close()
