"""Contexts: names for servers, as in a kubeconfig, in ``~/.config/conclave/config.toml``.

A context is either a server with its token file, or a kube context through which ``kubectl`` reaches the mesh. The file
holds paths of tokens, never tokens. ``CONCLAVE_CONTEXTS`` names another file, as KUBECONFIG does. It refuses unknown
keys: a misspelt one would send a command to the wrong cluster.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from shared.errors import ConfigError

CONTEXTS_ENV = "CONCLAVE_CONTEXTS"
LOCAL = "local"
"""The context that ``conclave up`` writes."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:/-]{0,127}")


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One context. ``server``: URLs, comma-separated, of which any may answer; empty with ``kube_context``."""

    server: str = ""
    token_file: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    kube_context: str = ""
    namespace: str = ""

    def __post_init__(self) -> None:
        if bool(self.server) == bool(self.kube_context):
            raise ValueError("give either server or kube-context")
        if self.namespace and not self.kube_context:
            raise ValueError("namespace belongs to kube-context; leave it out")
        if bool(self.cert) != bool(self.key):
            raise ValueError("cert and key go together; give both")

    def to_toml(self) -> dict[str, str]:
        """The fields that are set, as they are called in the file."""
        found = {item.name.replace("_", "-"): getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in found.items() if value}


KEYS = tuple(item.name.replace("_", "-") for item in fields(ContextEntry))


@dataclass(frozen=True, slots=True)
class Contexts:
    """The file's content. ``current`` is empty where none was chosen."""

    current: str = ""
    entries: Mapping[str, ContextEntry] = field(default_factory=dict)

    def named(self, name: str) -> ContextEntry:
        """The context ``name``. ``ConfigError``: there is none."""
        entry = self.entries.get(name)
        if entry is None:
            near = difflib.get_close_matches(name, self.entries, n=1)
            hint = f"did you mean {near[0]}?" if near else "see 'conclave context list'"
            raise ConfigError(f"--context: there is no context {name!r}; {hint}")
        return entry


def contexts_file(environ: Mapping[str, str]) -> Path:
    """Where the contexts are."""
    if environ.get(CONTEXTS_ENV):
        return Path(environ[CONTEXTS_ENV]).expanduser()
    base = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".config"
    return Path(base) / "conclave" / "config.toml"


def read_contexts(file: Path) -> Contexts:
    """The contexts in ``file``; none where there is no such file. ``ConfigError``: it cannot be used."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; fix its mode, or name another with {CONTEXTS_ENV}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: is not UTF-8; write it again with 'conclave context add'") from None
    try:
        return parse_contexts(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}; correct the TOML") from None
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None


def parse_contexts(document: Mapping[str, Any]) -> Contexts:
    """The contexts of a TOML document. ``ValueError``: a key or value that cannot be used, named."""
    _only(document, ("current", "contexts"), "")
    current, tables = document.get("current", ""), document.get("contexts", {})
    if not isinstance(current, str) or not isinstance(tables, dict):
        raise ValueError("current: must be a text and contexts a table; correct it")
    entries = {name: _entry(name, table) for name, table in tables.items()}
    if current and current not in entries:
        raise ValueError(f"current: there is no context {current!r}; choose one with 'conclave context use'")
    return Contexts(current, entries)


def _entry(name: str, table: Any) -> ContextEntry:
    where = f"contexts.{name}"
    if not isinstance(table, dict):
        raise ValueError(f"{where}: must be a table; correct it")
    _only(table, KEYS, f"{where}.")
    for key, value in table.items():
        if not isinstance(value, str):
            raise ValueError(f"{where}.{key}: must be a text; put it in quotes")
    try:
        return ContextEntry(**{key.replace("-", "_"): value for key, value in table.items()})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _only(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ValueError(f"{where}{key}: unknown key; {hint}")


def check_name(name: str) -> None:
    """``ConfigError``: no context can have this name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r}: no name for a context; use letters, digits and . _ @ : / -")


def write_contexts(file: Path, contexts: Contexts) -> None:
    """Write the file, whole or not at all, for this user alone. ``ConfigError``: it cannot be written."""
    text = render_contexts(contexts)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.touch(mode=0o600)
        partial.write_text(text, encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; make it writable, or name another with {CONTEXTS_ENV}") from None
    finally:
        with contextlib.suppress(OSError):  # what could not be written cannot be removed either
            partial.unlink()


def render_contexts(contexts: Contexts) -> str:
    """The TOML text that ``parse_contexts`` reads back. ``ConfigError``: a value with control characters."""
    lines = [f"current = {_quoted(contexts.current)}"] if contexts.current else []
    for name, entry in sorted(contexts.entries.items()):
        lines += ["", f"[contexts.{_quoted(name)}]"]
        lines += [f"{key} = {_quoted(value)}" for key, value in entry.to_toml().items()]
    return "\n".join(lines).lstrip("\n") + "\n"


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's, as long as nothing in it needs an escape that TOML writes otherwise."""
    if not text.isprintable():
        raise ConfigError(f"{text!r}: holds a character that cannot be printed; write it without")
    return json.dumps(text, ensure_ascii=False)
