"""Asks the leading coordinator about one pod: finds it through etcd, speaks with the mesh's own credentials.

Nothing is cached and nothing retried: who asks can ask again. It refuses to judge; the coordinator has all the facts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp

from services.cli.server.errors import PodUnknown
from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.runtime.process.process import ProcessSettings

TIMEOUT_S = 5.0
DEFAULT_NAMESPACE = "default"
POD_WORDS = ("pod", "pods", "po")
MAX_ANSWER_BYTES = 8 << 20


def named_pod(pod: str, namespace: str) -> tuple[str, str]:
    """(namespace, name) of ``POD -n NAMESPACE`` or ``NAMESPACE/POD``. ``ConfigError``: it is neither, or both.

    The pod may be written as kubectl writes it, ``pod/NAME``; without a namespace it is in ``default``.
    """
    before, slash, name = pod.rpartition("/")
    if not name or "/" in before or (slash and not before):
        raise ConfigError(f"{pod!r} is not NAMESPACE/POD, nor POD with -n; write default/web-0, or web-0 -n default")
    if not namespace:
        return (DEFAULT_NAMESPACE if before in ("", *POD_WORDS) else before), name
    if before not in ("", namespace, *POD_WORDS):
        raise ConfigError(f"-n: {pod!r} names the namespace {before} already; leave one of them out")
    return namespace, name


async def ask(settings: ProcessSettings, url: str, namespace: str, name: str) -> dict[str, Any]:
    """The leader's answer. ``PodUnknown``: no such pod. ``ConfigError``: nobody leads, answers or lets us in."""
    base = (url or await leader_url(settings)).rstrip("/")
    return await _get(settings, base, f"/v1/explain/{quote(namespace, safe='')}/{quote(name, safe='')}")


async def leader_url(settings: ProcessSettings) -> str:
    """The leading coordinator's address as etcd has it. ``ConfigError``: etcd is silent, or nobody leads."""
    from services.cli.etcd.status import look

    view = await look(settings)
    if view.coordinator is None:
        raise ConfigError("no coordinator leads; start one, or see conclave status")
    return view.coordinator.record.url


async def _get(settings: ProcessSettings, base: str, path: str) -> dict[str, Any]:
    from shared.adapters.peers.credentials import TokenFile, client_tls
    from shared.adapters.peers.identity import identity_of

    headers: dict[str, str] = {}
    options: dict[str, Any] = {"allow_redirects": False}
    if settings.token_file is not None:
        headers["Authorization"] = TokenFile(settings.token_file).authorization()
    if settings.tls_cert and settings.tls_key and settings.tls_ca:
        if not base.startswith("https://"):
            raise ConfigError(f"{base}: is without TLS though --tls-cert is given; mend --url, or leave the files out")
        options["ssl"] = client_tls(ca_file=settings.tls_ca, cert_file=settings.tls_cert, key_file=settings.tls_key)
        options["server_hostname"] = identity_of("coordinator")  # as services do: by role, not by address
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session,
            session.get(base + path, **options) as answer,
        ):
            data, status = bytearray(), answer.status
            async for part in answer.content.iter_any():
                data += part
                if len(data) > MAX_ANSWER_BYTES:
                    raise aiohttp.ClientPayloadError(f"more than {MAX_ANSWER_BYTES} bytes")
        body = json.loads(data)
    except (aiohttp.ClientError, TimeoutError) as error:
        told = str(error) or type(error).__name__
        raise ConfigError(f"{base}: the coordinator does not answer ({told}); see conclave status") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{base}: the answer is no JSON; is this a coordinator?") from None
    if status == 200 and isinstance(body, dict):
        return body
    code, message = (str(body.get("code", "")), str(body.get("message", ""))) if isinstance(body, dict) else ("", "")
    if code == "pod_unknown":
        raise PodUnknown(message)
    raise ConfigError(f"{base}: {status} {code}: {message}{_REMEDIES.get(code, '')}")


_REMEDIES = {
    "not_leader": "; ask that one, or leave --url out",
    "not_ready": "; ask again in a moment",
    "unauthenticated": "; give the mesh's token with --token-file, or a certificate with --tls-cert",
    "forbidden": "; use a token or certificate that may read",
    "route_unknown": "; is this a coordinator, and of this version?",
}
