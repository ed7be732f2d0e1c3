"""Create the Secret conclave-peer-token with random tokens, unless it is there already.

Two keys: ``token`` is what services read (their own token, and the one of whoever may only look at metrics),
``metrics-token`` is the second one alone, for Prometheus. Standard library only; it runs once, as a Job, with the right
to create Secrets in its own namespace and no other.
"""

import json
import os
import pathlib
import secrets
import ssl
import sys
import urllib.error
import urllib.request

NAME = "conclave-peer-token"
ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")


def main() -> int:
    """The exit code. The Job is tried again when the API server does not answer."""
    account = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ACCOUNT
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"[{host}]" if ":" in host else host
    namespace = (account / "namespace").read_text().strip()
    peers, metrics = secrets.token_hex(32), secrets.token_hex(32)
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "conclave"}},
        "stringData": {"token": f"{peers}\n{metrics} metrics\n", "metrics-token": metrics},
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
            print(f"{namespace}/{NAME}: it is there already, and stays as it is")
            return 0
        print(f"{namespace}/{NAME}: the API server refuses: {error.code} {error.read(512).decode(errors='replace')}")
        return 1
    except OSError as error:
        print(f"{namespace}/{NAME}: no answer from the API server: {error}")
        return 1
    print(f"{namespace}/{NAME}: created")
    return 0


if __name__ == "__main__":
    sys.exit(main())
