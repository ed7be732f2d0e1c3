"""Where the API server is and who we are: kubeconfig, in-cluster, exec plugins, rotation.

The only file that imports ``kubernetes`` (``kubernetes.aio.config``, lazily: 58 MB of memory, so only processes that
talk to a cluster pay it, and no model class is touched). It turns the library's configuration into what raw aiohttp
needs, and adds what the library leaves out: certificates and CA that rotate, exec plugins that give certificates,
errors that name the file and the remedy. It does not fall back from a kubeconfig that was named to another one.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from shared.errors import ConfigError

log = structlog.get_logger()

CHECK_S = 60.0
"""How often expiring credentials are looked at (the library's own period)."""

RELOAD_S = 3600.0
"""Everything is read anew at least so often: client certificates and CAs rotate in place."""

EXPIRY_LEAD = timedelta(minutes=5)
"""An exec plugin's credentials are renewed so long before they expire."""

MIN_RENEW_GAP_S = 5.0
"""A server that answers 401 to everybody must not make us run an exec plugin in a loop."""

IN_CLUSTER_HINT = "KUBERNETES_SERVICE_HOST"


@dataclass(frozen=True, slots=True)
class _Loaded:
    """One complete reading of the configuration; replaced as a whole."""

    configuration: Any
    loader: Any
    base_url: str
    tls: ssl.SSLContext | None


class KubeConfig:
    """``kube_transport.KubeAccess`` by the official library. Make it with ``load``; run ``keep_fresh`` beside it."""

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
        proxy: str | None = self._current.configuration.proxy
        return proxy

    @property
    def server_hostname(self) -> str | None:
        """See ``KubeAccess``."""
        name: str | None = self._current.configuration.tls_server_name
        return name

    @property
    def cluster_name(self) -> str:
        """What the kubeconfig calls the cluster; empty in a cluster, where nothing names it."""
        loader = self._current.loader
        try:
            name = loader.current_context["context"]["cluster"] if loader is not None else ""
        except (KeyError, TypeError, AttributeError):
            return ""
        return str(name or "")

    def tls(self) -> ssl.SSLContext | None:
        """See ``KubeAccess``."""
        return self._current.tls

    async def headers(self) -> Mapping[str, str]:
        """See ``KubeAccess``. In a cluster this re-reads the token file each minute (2 us otherwise)."""
        value: str | None = await self._current.configuration.get_api_key_with_prefix("BearerToken")
        # the library keeps a trailing newline of the token file, which no header may hold
        return {"Authorization": value.strip()} if value else {}

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
        loader = self._current.loader
        if loader is None:
            return False
        user = getattr(loader, "_user", None)
        expiry = getattr(loader, "exec_plugin_expiry", None)
        if expiry is not None:
            return bool(datetime.now(UTC) + EXPIRY_LEAD >= expiry)
        # gcp tokens expire hourly, OIDC at the issuer's will, token files when they are rewritten
        return loader.provider is not None or (user is not None and "tokenFile" in user)

    async def _read(self) -> _Loaded:
        import kubernetes.aio

        config: Any = kubernetes.aio.config
        configuration = kubernetes.aio.client.Configuration()
        if self._path is None and not os.environ.get("KUBECONFIG") and os.environ.get(IN_CLUSTER_HINT):
            try:
                config.load_incluster_config(client_configuration=configuration)
            except (config.ConfigException, OSError) as error:
                raise ConfigError(
                    f"in-cluster configuration: {_clean(error)}; mount the service account token or set --kubeconfig"
                ) from error
            return _Loaded(configuration, None, configuration.host.rstrip("/"), _tls(configuration, "in-cluster"))
        file = _kubeconfig_path(self._path)
        _check_file(file, self._context)
        try:
            loader = await config.load_kube_config(
                config_file=file, context=self._context, client_configuration=configuration, persist_config=False
            )
        except (config.ConfigException, TypeError, ValueError, KeyError, AttributeError, OSError) as error:
            # a file that the kubeconfig names, such as a tokenFile
            named = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
            raise ConfigError(f"{file}: {named}{_clean(error)}; fix this field or choose another --context") from error
        user = getattr(loader, "_user", None)
        if user is not None and "exec" in user and not configuration.api_key and not configuration.cert_file:
            command = user["exec"].safe_get("command")
            raise ConfigError(
                f"{file}: users[].user.exec: {command!r} gave no credentials; run it by hand to see its error"
            )
        _check_server(file, configuration.host)
        return _Loaded(configuration, loader, configuration.host.rstrip("/"), _tls(configuration, file))


def _check_server(file: str, server: str) -> None:
    try:
        url = urlsplit(server)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"{file}: clusters[].cluster.server: {server[:128]!r} is no URL; give one such as https://10.0.0.1:6443"
        )


def _tls(configuration: Any, source: str) -> ssl.SSLContext | None:
    if not configuration.host.startswith("https"):
        return None
    from kubernetes.aio.client.rest import RESTClientObject

    try:
        context: ssl.SSLContext = RESTClientObject(configuration).ssl_context
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"{source}: CA, client certificate or key cannot be used ({_clean(error)}); renew the kubeconfig"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _kubeconfig_path(path: Path | None) -> str:
    if path is not None:
        return str(path)
    return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def _check_file(paths: str, context: str | None) -> None:
    """What a person gets wrong, told before the library wraps it: no file, no YAML, no such context."""
    import yaml

    files = [Path(part).expanduser() for part in paths.split(os.pathsep) if part]
    contexts: list[str] = []
    current = ""
    found = False
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: kubeconfig cannot be read ({_clean(error)}); check the file") from error
        found = True
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
            problem = getattr(error, "problem", None) or "it does not parse"
            raise ConfigError(f"{file}: not valid YAML{where}: {problem}; fix the kubeconfig") from error
        if not isinstance(data, dict):
            raise ConfigError(f"{file}: not a kubeconfig (no mapping at the top); give another --kubeconfig")
        for section in ("clusters", "contexts", "users"):
            entries = data.get(section)
            if not (entries is None or isinstance(entries, list)):
                raise ConfigError(f"{file}: {section} is not a list; fix the kubeconfig")
            for number, entry in enumerate(entries or ()):
                if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                    raise ConfigError(f"{file}: {section}[{number}] has no name; fix the kubeconfig")
        contexts += [entry["name"] for entry in data.get("contexts") or ()]
        current = current or str(data.get("current-context") or "")
    if not found:
        raise ConfigError(f"{paths}: kubeconfig does not exist; give the right path with --kubeconfig")
    wanted = context or current
    listed = ", ".join(contexts[:10]) or "none"
    if not wanted:
        raise ConfigError(f"{paths}: current-context is not set; choose one with --context (known: {listed})")
    if wanted not in contexts:
        raise ConfigError(f"{paths}: context {wanted!r} is not in contexts (known: {listed}); choose one of them")


def _clean(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:256].removeprefix("Invalid kube-config file. ")
