"""Credentials from a program: ``users[].user.exec`` of a kubeconfig, as client-go's credential plugins.

The plugin gets ``KUBERNETES_EXEC_INFO`` and prints one ExecCredential. Its standard input is ours: it may ask a person.
Nothing is kept here; who renews runs it again. Its output is never put into a message, since it may hold a secret; the
end of its standard error is.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from shared.adapters.kube.kubeconfig import Entry
from shared.errors import ConfigError

TIMEOUT_S = 120.0
"""A person may have to log in meanwhile."""


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


async def credential_of(user: Entry) -> Credential:
    """What the plugin of ``user`` gives. ``ConfigError``: nothing that can be used."""
    asked = user.fields["exec"]
    if not isinstance(asked, dict) or not isinstance(asked.get("command"), str) or not asked["command"]:
        raise user.error("exec", "Expected key command")
    command, version = asked["command"], str(asked.get("apiVersion") or "")
    if os.sep in command:
        command = str(user.folder / command)
    try:
        found = await _run(command, [str(part) for part in asked.get("args") or ()], _environment(asked, version))
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


def _environment(asked: Mapping[str, Any], version: str) -> dict[str, str]:
    named = {str(item["name"]): str(item["value"]) for item in asked.get("env") or ()}
    spec = {"interactive": sys.stdin is not None and sys.stdin.isatty()}
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    return {**os.environ, **named, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}


async def _run(command: str, arguments: list[str], environment: dict[str, str]) -> _Answer:
    process = await asyncio.create_subprocess_exec(
        command, *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
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


def _nothing(user: Entry, command: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{user.where}.exec: {command!r} gave no credentials ({' '.join(problem.split())[:192]}); "
        "run it by hand to see its error"
    )
