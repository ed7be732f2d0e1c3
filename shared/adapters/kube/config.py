"""Where the API server is and who we are: kubeconfig, in-cluster, exec plugins, rotation.

    load --> what is in force --headers, tls--> transport
                  ^   token files: read again each minute
                  +-- renew: everything anew, each hour, before credentials expire, after a 401 or a failed handshake

Read by ``kubeconfig`` and ``exec_plugin``; the official client, half a second and 30 MB at start, is imported for an
``auth-provider`` alone (OIDC, which Kubernetes keeps for old kubeconfigs). Errors name the file and the remedy. It does
not fall back from a kubeconfig that was named to another one.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct

from shared.adapters.http.proxies import checked_proxy, proxy_from_environment
from shared.adapters.kube.exec_plugin import Credential, credential_of
from shared.adapters.kube.kubeconfig import KubeconfigEntry, KubeContext, choose, kubeconfig_paths
from shared.errors import ConfigError
from shared.hostport import bare_host, server_of, url_of

log = structlog.get_logger()

CHECK_S = 60.0
"""How often expiring credentials are looked at, and token files are read again (client-go's period)."""

RELOAD_S = 3600.0
"""Everything is read anew at least so often: client certificates and CAs rotate in place."""

EXPIRY_LEAD = timedelta(minutes=5)
"""An exec plugin's credentials are renewed so long before they expire."""

MIN_RENEW_GAP_S = 5.0
"""A server that answers 401 to everybody must not make us run an exec plugin in a loop."""

IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
"""Fields of a user that change who we are; left out in silence they would give us other rights than were meant."""

IN_CLUSTER_HOST, IN_CLUSTER_PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's token and the cluster's CA."""


class _Bearer:
    """The Authorization header: one that stays, or that of a token file, which the kubelet rewrites."""

    def __init__(self, value: str = "", file: Path | None = None) -> None:
        self._file = file
        self._read_at = time.monotonic()
        self._headers: dict[str, str] = {}
        self._set(value if file is None else _token_in(file))

    def headers(self) -> Mapping[str, str]:
        """The same mapping until the value changes."""
        if self._file is not None and (now := time.monotonic()) - self._read_at >= CHECK_S:
            self._read_at = now
            try:
                value = _token_in(self._file)
            except (OSError, UnicodeDecodeError) as error:
                log.warning("kube_token_kept", file=str(self._file), error=error)
            else:
                self._set(value)
        return self._headers

    def _set(self, value: str) -> None:
        self._headers = {"Authorization": value} if value else {}


def _token_in(file: Path) -> str:
    token = file.read_text(encoding="utf-8").strip()
    return f"Bearer {token}" if token else ""


class _Loaded(Struct, frozen=True):
    """One complete reading of the configuration; replaced as a whole."""

    base_url: str
    tls: ssl.SSLContext | None
    bearer: _Bearer
    proxy: str | None = None
    server_hostname: str | None = None
    cluster_name: str = ""
    expiry: datetime | None = None
    """When the credentials end, where somebody says."""


class KubeConfig:
    """``transport.KubeAccess``. Make it with ``load``; run ``keep_fresh`` beside it."""

    def __init__(self, path: Path | None, context: str | None) -> None:
        self._path = path
        self._context = context
        self._loaded: _Loaded | None = None
        self._renewed_at = float("-inf")
        self._lock = asyncio.Lock()

    @classmethod
    async def load(cls, path: Path | None = None, *, context: str | None = None) -> KubeConfig:
        """Read the configuration: ``path``, else in-cluster where we are in one, else KUBECONFIG, ~/.kube/config.

        ``ConfigError``, one line: the file, what is wrong with which field, and the remedy.
        """
        access = cls(path, context)
        access._loaded = await access._read()
        return access

    @property
    def base_url(self) -> str:
        """See ``KubeAccess``."""
        return self._current.base_url

    @property
    def proxy(self) -> str | None:
        """See ``KubeAccess``."""
        return self._current.proxy

    @property
    def server_hostname(self) -> str | None:
        """See ``KubeAccess``."""
        return self._current.server_hostname

    @property
    def cluster_name(self) -> str:
        """What the kubeconfig calls the cluster; empty in a cluster, where nothing names it."""
        return self._current.cluster_name

    def tls(self) -> ssl.SSLContext | None:
        """See ``KubeAccess``."""
        return self._current.tls

    async def headers(self) -> Mapping[str, str]:
        """See ``KubeAccess``. A token file is read again each minute."""
        return self._current.bearer.headers()

    async def renew(self) -> bool:
        """Read everything anew; keeps what we have when that fails. False when it failed or was done just now."""
        asked = time.monotonic()
        async with self._lock:
            if self._renewed_at >= asked:
                return True  # somebody else did, while we waited
            if asked - self._renewed_at < MIN_RENEW_GAP_S:
                return False
            self._renewed_at = time.monotonic()
            try:
                self._loaded = await self._read()
            except ConfigError as error:
                log.warning("kube_credentials_kept", error=error)
                return False
            log.info("kube_credentials_renewed")
            return True

    async def keep_fresh(self) -> None:
        """Renew before tokens and certificates expire. Eternal; never fails on a plugin's error (it is logged)."""
        reloaded = time.monotonic()
        while True:
            await asyncio.sleep(CHECK_S)
            if time.monotonic() - reloaded >= RELOAD_S or self._expires_soon():
                await self.renew()
                reloaded = time.monotonic()

    @property
    def _current(self) -> _Loaded:
        assert self._loaded is not None, "made by load"
        return self._loaded

    def _expires_soon(self) -> bool:
        expiry = self._current.expiry
        return expiry is not None and datetime.now(UTC) + EXPIRY_LEAD >= expiry

    async def _read(self) -> _Loaded:
        if self._path is None and not os.environ.get("KUBECONFIG") and os.environ.get(IN_CLUSTER_HOST):
            return _in_cluster()
        paths = kubeconfig_paths(self._path)
        chosen = choose(paths, self._context)
        cluster, user = chosen.cluster, chosen.user
        file = cluster.where.split(": ", 1)[0]
        server = cluster.text("server").rstrip("/")
        try:
            server_of(server)
        except ValueError as error:
            raise ConfigError(
                f"{file}: clusters[].cluster.server: {error}; give one such as https://10.0.0.1:6443"
            ) from None
        # as client-go has it: what the kubeconfig names is asked for everything, NO_PROXY or not
        named = cluster.text("proxy-url")
        proxy = checked_proxy(named, f"{file}: clusters[].cluster.proxy-url") if named else _proxy(server)
        if user is not None and (impersonated := next((one for one in IMPERSONATION if one in user.fields), "")):
            raise user.error(impersonated, "nobody is impersonated here; name a user that has the rights itself")
        credential, expiry = Credential(), None
        if user is not None and "auth-provider" in user.fields:
            bearer, expiry = await _by_the_library(paths, self._context, user), datetime.now(UTC)
        elif user is not None and "exec" in user.fields:
            credential = await credential_of(user, cluster)
            bearer, expiry = _Bearer(f"Bearer {credential.token}" if credential.token else ""), credential.expiry
        else:
            bearer = _stated(user)
        return _Loaded(
            base_url=server,
            tls=_tls(chosen, credential) if server.startswith("https") else None,
            bearer=bearer,
            proxy=proxy,
            server_hostname=cluster.text("tls-server-name") or None,
            cluster_name=chosen.cluster_name,
            expiry=expiry,
        )


def _in_cluster() -> _Loaded:
    """As the kubelet tells a pod."""
    host, port = os.environ[IN_CLUSTER_HOST], os.environ.get(IN_CLUSTER_PORT, "")
    remedy = "mount the service account token or set --kubeconfig"
    if not port:
        raise ConfigError(f"in-cluster configuration: {IN_CLUSTER_PORT} is not set; {remedy}")
    try:
        bearer = _Bearer(file=SERVICE_ACCOUNT / "token")
        if not bearer.headers():
            raise ConfigError(f"in-cluster configuration: {SERVICE_ACCOUNT / 'token'} is empty; {remedy}")
        context = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    except (OSError, UnicodeDecodeError) as error:
        named = getattr(error, "filename", None) or SERVICE_ACCOUNT
        raise ConfigError(f"in-cluster configuration: {named}: {_clean(error)}; {remedy}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not port.isdecimal():
        raise ConfigError(f"in-cluster configuration: {IN_CLUSTER_PORT}={port[:32]!r} is no port; {remedy}")
    server = url_of("https", bare_host(host), int(port))  # the kubelet writes IPv6 without brackets
    return _Loaded(server, context, bearer, proxy=_proxy(server))


def _proxy(server: str) -> str | None:
    """The proxy that the environment names for the server; told, since nothing else shows which way requests go."""
    proxy = proxy_from_environment(server, os.environ)
    if proxy is not None:
        through = server_of(proxy)
        log.info("kube_through_proxy", server=server, proxy=through.url)
    return proxy


def _stated(user: KubeconfigEntry | None) -> _Bearer:
    """What the kubeconfig itself holds: a token, a token file, a name and a password, or nothing."""
    if user is None:
        return _Bearer()
    token = user.text("token").strip()
    if user.text("tokenFile"):
        try:
            return _Bearer(file=user.path("tokenFile"))
        except (OSError, UnicodeDecodeError) as error:
            if not token:  # as in client-go: the file, and the token in its place
                raise user.error("tokenFile", f"{user.path('tokenFile')}: {_clean(error)}") from error
    if token:
        return _Bearer(f"Bearer {token}")
    if user.text("username") and user.text("password"):
        named = f"{user.text('username')}:{user.text('password')}"
        return _Bearer(f"Basic {base64.b64encode(named.encode()).decode()}")
    return _Bearer()


async def _by_the_library(paths: str, context: str | None, user: KubeconfigEntry) -> _Bearer:
    """The header of an ``auth-provider``, whose token the official client renews."""
    try:
        import kubernetes.aio
    except ImportError as error:
        raise user.error("auth-provider", "needs the package kubernetes; install it, or use exec") from error
    config: Any = kubernetes.aio.config
    configuration = kubernetes.aio.client.Configuration()
    try:
        await config.load_kube_config(
            config_file=paths, context=context, client_configuration=configuration, persist_config=False
        )
        value: str | None = await configuration.get_api_key_with_prefix("BearerToken")
    except (config.ConfigException, TypeError, ValueError, KeyError, AttributeError, OSError) as error:
        raise user.error("auth-provider", _clean(error)) from error
    return _Bearer((value or "").strip())


def _tls(chosen: KubeContext, credential: Credential) -> ssl.SSLContext:
    """CA and client certificate as the context and the plugin name them."""
    cluster, user = chosen.cluster, chosen.user
    authority = cluster.material("certificate-authority")
    certificate, key = credential.client_certificate_data.encode(), credential.client_key_data.encode()
    if not certificate and user is not None:
        certificate, key = user.material("client-certificate") or b"", user.material("client-key") or b""
    try:
        if authority is not None and b"-----BEGIN" not in authority:
            raise ValueError("certificate-authority holds no certificate in PEM")
        context = ssl.create_default_context(cadata=authority.decode("ascii", "ignore") if authority else None)
        if certificate:
            _show(context, certificate, key)
    except (OSError, ValueError) as error:
        file = cluster.where.split(": ", 1)[0]
        raise ConfigError(
            f"{file}: CA, client certificate or key cannot be used ({_clean(error)}); renew the kubeconfig"
        ) from error
    if cluster.is_true("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Show the certificate to servers. OpenSSL reads it from a file, which is ours alone and gone at once."""
    with tempfile.TemporaryDirectory(prefix="conclave-") as folder:
        file = Path(folder) / "pair.pem"
        file.touch(mode=0o600)
        file.write_bytes(certificate + b"\n" + key)
        context.load_cert_chain(file, password="")  # a key that needs one is refused, not asked for


def _clean(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:256].removeprefix("Invalid kube-config file. ")
