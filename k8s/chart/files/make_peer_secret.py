"""Create the Secrets conclave-peer-token and conclave-admin-token with random tokens, unless they are there already.

conclave-peer-token: ``token`` is what services read (their own token, and the one of whoever may only look at metrics),
``metrics-token`` is the second one alone, for Prometheus. conclave-admin-token: ``tokens`` is what coordinators read
(one per role), ``admin``, ``operator`` and ``viewer`` are each alone, for people. Standard library only; it runs once,
as a Job, with the right to create Secrets in its own namespace and no other.
"""

import json
import os
import pathlib
import secrets
import ssl
import sys
import urllib.error
import urllib.request

ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")


def contents() -> dict[str, dict[str, str]]:
    """What each Secret holds."""
    peers, metrics = secrets.token_hex(32), secrets.token_hex(32)
    roles = {role: secrets.token_hex(32) for role in ("admin", "operator", "viewer")}
    return {
        "conclave-peer-token": {"token": f"{peers}\n{metrics} metrics\n", "metrics-token": metrics},
        "conclave-admin-token": {"tokens": "".join(f"{t} {role}\n" for role, t in roles.items()), **roles},
    }


def create(name: str, data: dict[str, str], account: pathlib.Path) -> bool:
    """Whether the Secret is there afterwards."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"[{host}]" if ":" in host else host
    namespace = (account / "namespace").read_text().strip()
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "conclave"}},
        "stringData": data,
    }
    request = urllib.request.Request(
        f"https://{address}:{port}/api/v1/namespaces/{namespace}/secrets",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {(account / 'token').read_text().strip()}",
            "Content-Type": "application/json",
        },
    )
    context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    try:
        urllib.request.urlopen(request, context=context, timeout=10).close()
    except urllib.error.HTTPError as error:
        if error.code == 409:
            print(f"{namespace}/{name}: it is there already, and stays as it is")
            return True
        print(f"{namespace}/{name}: the API server refuses: {error.code} {error.read(512).decode(errors='replace')}")
        return False
    except OSError as error:
        print(f"{namespace}/{name}: no answer from the API server: {error}")
        return False
    print(f"{namespace}/{name}: created")
    return True


def main() -> int:
    """The exit code. The Job is tried again when the API server does not answer."""
    account = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ACCOUNT
    made = [create(name, data, account) for name, data in contents().items()]
    return 0 if all(made) else 1


if __name__ == "__main__":
    sys.exit(main())
