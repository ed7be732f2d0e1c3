"""krew's manifest for ``kubectl conclave``, and what it installs: a launcher of the package of the same version.

The command line is Python with compiled parts, so an archive of its own would be one a platform and Python; the
launcher has ``uvx`` or ``pipx`` fetch the wheel that fits.
"""

from __future__ import annotations

from typing import Any

from shared.version import CONCLAVE_VERSION

PLATFORMS = [(system, machine) for system in ("linux", "darwin") for machine in ("amd64", "arm64")]
WHEEL = f"conclave-scheduler=={CONCLAVE_VERSION}"
"""Not ``conclave``: on PyPI that is a stranger's, and what is fetched runs with an administrator's kubeconfig."""
LAUNCHER = f"""#!/bin/sh
# kubectl conclave: the command line of Conclave {CONCLAVE_VERSION}, by the first of these that is there.
set -eu
if command -v uvx >/dev/null 2>&1; then
    exec uvx --quiet --from {WHEEL} kubectl-conclave "$@"
fi
if command -v pipx >/dev/null 2>&1; then
    exec pipx run --spec {WHEEL} kubectl-conclave "$@"
fi
echo "kubectl conclave: neither uvx nor pipx is on PATH; install one, or: pip install {WHEEL}" >&2
exit 2
"""


def krew_manifest(uri: str, sha256: str) -> dict[str, Any]:
    """What krew's index holds. ``uri``, ``sha256``: of the archive with the launcher, the same for all platforms."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "conclave"},
        "spec": {
            "version": f"v{CONCLAVE_VERSION}",
            "homepage": uri.rsplit("/", 2)[0],
            "shortDescription": "See and steer the Conclave scheduler",
            "description": "Why a pod waits, what each agent decides, roll-outs of policies, queues, pauses and\n"
            "drains of Conclave, a learned scheduler. It reaches the mesh through the API server.\n",
            "caveats": "Needs Python 3.11 or later by way of uvx or pipx.\n",
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": system, "arch": machine}},
                    "uri": uri,
                    "sha256": sha256,
                    "bin": "kubectl-conclave",
                    "files": [{"from": name, "to": "."} for name in ("kubectl-conclave", "LICENSE")],
                }
                for system, machine in PLATFORMS
            ],
        },
    }
