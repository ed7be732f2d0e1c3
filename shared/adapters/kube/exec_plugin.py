"""Credentials from a program: ``users[].user.exec`` of a kubeconfig, as client-go's credential plugins.

The plugin gets ``KUBERNETES_EXEC_INFO``, with the cluster where ``provideClusterInfo`` asks for it, and prints one
ExecCredential. Where its ``interactiveMode`` allows it and a terminal is there, its standard input is ours: it may ask
a person. Source: client-go, plugin/pkg/client/auth/exec. Nothing is kept here; who renews runs it again. Its output is
never put into a message, since it may hold a secret; the end of its standard error is.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from shared.adapters.kube.kubeconfig import KubeconfigEntry
from shared.errors import ConfigError

TIMEOUT_S = 120.0
"""A person may have to log in meanwhile."""

CLUSTER_CONFIG = "client.authentication.k8s.io/exec"
"""The extension of a cluster whose content plugins get as ``spec.cluster.config``."""

HINT_LIMIT = 512


class Credential(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of an ExecCredential: a token, a client certificate with its key, or both."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None

    @property
    def expiry(self) -> datetime | None:
        """When it must have been renewed; UTC where the plugin names no zone."""
        when = self.expiration_timestamp
        return when if when is None or when.tzinfo is not None else when.replace(tzinfo=UTC)


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: Credential | None = None


async def credential_of(user: KubeconfigEntry, cluster: KubeconfigEntry) -> Credential:
    """What the plugin of ``user`` gives for ``cluster``. ``ConfigError``: nothing that can be used."""
    asked = user.fields["exec"]
    if not isinstance(asked, dict) or not isinstance(asked.get("command"), str) or not asked["command"]:
        raise user.error("exec", "Expected key command")
    arguments = asked.get("args") or []
    if not isinstance(arguments, list):
        raise user.error("exec.args", f"{str(arguments)[:64]!r} is no list; write one item for each argument")
    command, version = asked["command"], str(asked.get("apiVersion") or "")
    if os.sep in command:
        command = str(user.folder / command)
    interactive = _interactive(user, asked)
    told: dict[str, Any] = {"interactive": interactive}
    if asked.get("provideClusterInfo") is True:
        told["cluster"] = _cluster_info(cluster)
    try:
        environment = _environment(asked, version, told)
        found = await _run(command, [str(part) for part in arguments], environment, interactive)
    except FileNotFoundError as error:
        hint = " ".join(str(asked.get("installHint") or "").split())[:HINT_LIMIT]
        raise user.error("exec", f"{command!r} is not installed here{': ' if hint else ''}{hint}") from error
    except (OSError, ValueError, TypeError, KeyError, msgspec.DecodeError) as error:
        raise _nothing(user, command, f"{type(error).__name__}: {error}") from error
    credential = found.status
    if found.api_version != version:
        raise _nothing(user, command, f"it speaks {found.api_version[:64]!r}, not {version[:64]!r}")
    if credential is None or not (credential.token or credential.client_certificate_data):
        raise _nothing(user, command, "no token and no clientCertificateData")
    if bool(credential.client_certificate_data) != bool(credential.client_key_data):
        raise _nothing(user, command, "clientCertificateData and clientKeyData come together")
    return credential


def _interactive(user: KubeconfigEntry, asked: Mapping[str, Any]) -> bool:
    """Whether the plugin may ask a person."""
    mode = asked.get("interactiveMode") or "IfAvailable"
    if mode not in ("Never", "IfAvailable", "Always"):
        raise user.error("exec.interactiveMode", f"{str(mode)[:64]!r} is not Never, IfAvailable or Always")
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not terminal:
        raise user.error(
            "exec.interactiveMode", "Always, and standard input is no terminal: nobody could be asked; use a plugin "
            "that needs nobody",
        )  # fmt: skip
    return terminal and mode != "Never"


def _cluster_info(cluster: KubeconfigEntry) -> dict[str, Any]:
    """``spec.cluster`` of the ExecCredential: how the cluster is reached, and what its kubeconfig holds for plugins."""
    info: dict[str, Any] = {"server": cluster.text("server")}
    for field in ("tls-server-name", "proxy-url"):
        if text := cluster.text(field):
            info[field] = text
    for field in ("insecure-skip-tls-verify", "disable-compression"):
        if cluster.is_true(field):
            info[field] = True
    if (authority := cluster.material("certificate-authority")) is not None:
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    extensions = cluster.fields.get("extensions")
    for extension in extensions if isinstance(extensions, list) else ():
        if isinstance(extension, dict) and extension.get("name") == CLUSTER_CONFIG:
            info["config"] = extension.get("extension")
    return info


def _environment(asked: Mapping[str, Any], version: str, spec: Mapping[str, Any]) -> dict[str, str]:
    named = {str(item["name"]): str(item["value"]) for item in asked.get("env") or ()}
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    return {**os.environ, **named, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}


async def _run(command: str, arguments: list[str], environment: dict[str, str], interactive: bool) -> _Answer:
    process = await asyncio.create_subprocess_exec(
        command, *arguments, env=environment, stdin=None if interactive else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, errors = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    if process.returncode != 0:
        told = " ".join(errors.decode("utf-8", "replace").split())[-128:]
        raise ValueError(f"exit status {process.returncode}{': ' if told else ''}{told}")
    return msgspec.json.decode(output, type=_Answer)


def _nothing(user: KubeconfigEntry, command: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{user.where}.exec: {command!r} gave no credentials ({' '.join(problem.split())[:192]}); "
        "run it by hand to see its error"
    )
