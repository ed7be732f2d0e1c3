"""Make what the stack needs and nobody should have to think of: tokens, a password, and folders their users may write.

Runs at every start and changes nothing that is there. Each secret is readable by the one user that needs it; our
services are one user, so each of them can read what the others have: this is one machine, for development. In
Kubernetes every service has Secrets of its own. Standard library only.
"""

import os
import pathlib
import secrets

SERVICE, PROMETHEUS, GRAFANA = 65532, 65534, 472
"""User ids: of our images, and of the official ones of Prometheus and Grafana."""

FOLDERS = ("/kube", "/var/lib/etcd", "/var/lib/etcd-2", "/var/lib/etcd-3", "/var/lib/conclave")


def give(path: pathlib.Path, user: int, mode: int) -> None:
    """Owner and mode, whatever they were."""
    path.chmod(mode)
    os.chown(path, user, user)


def make(folder: pathlib.Path, name: str, user: int, text: str) -> bool:
    """A secret, unless it is there. Whether it was made."""
    path = folder / name
    missing = not path.exists()
    if missing:
        # whole or not at all: a stop in between leaves no half secret behind
        draft = folder / f".{name}"
        draft.write_text(text)
        draft.replace(path)
    give(path, user, 0o400)
    return missing


def main() -> None:
    """All of them."""
    folder = pathlib.Path(os.environ.get("SECRETS_DIR", "/secrets"))
    metrics = secrets.token_hex(32)
    make(folder, "twin-token", SERVICE, secrets.token_hex(32) + "\n")
    make(folder, "grafana-password", GRAFANA, secrets.token_hex(16))
    make(folder, "metrics-token", PROMETHEUS, metrics)
    # of the admin API: a client that is given the file sends the first one
    roles = ("admin", "operator", "viewer")
    make(folder, "admin-tokens", SERVICE, "".join(f"{secrets.token_hex(32)} {role} compose\n" for role in roles))
    # what services accept: each other, and whoever may only look at metrics
    metrics = (folder / "metrics-token").read_text().strip()
    make(folder, "peer-token", SERVICE, f"{secrets.token_hex(32)}\n")
    peers = folder / "peer-token"
    lines = [line for line in peers.read_text().splitlines() if line.strip() and not line.endswith(" metrics")]
    wanted = "\n".join([*lines, f"{metrics} metrics"]) + "\n"
    if peers.read_text() != wanted:
        draft = folder / ".peer-token"
        draft.write_text(wanted)
        give(draft, SERVICE, 0o400)
        draft.replace(peers)
    for name in FOLDERS:
        if pathlib.Path(name).is_dir():
            give(pathlib.Path(name), SERVICE, 0o700)


if __name__ == "__main__":
    main()
