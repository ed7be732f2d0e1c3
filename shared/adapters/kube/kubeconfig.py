"""What a kubeconfig says of one context: its cluster, its user, and the files that they name.

Several files (``KUBECONFIG=a:b``) are read as kubectl does: of entries of one name the first counts, of the current
context too; a file that is not there is left out. Paths in a file are relative to it. Each error is a ``ConfigError``
of one line that names the file, the field and the remedy. It does not look at anything that the context does not name.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from shared.errors import ConfigError

SECTIONS = ("clusters", "contexts", "users")


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """What stands under one name. ``where``: file and field, for messages; ``folder``: where its paths begin."""

    where: str
    fields: Mapping[str, Any]
    folder: Path

    def text(self, field: str) -> str:
        """The field as text; "" without it."""
        value = self.fields.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(field, f"{type(value).__name__} where text belongs")
        return value

    def is_true(self, field: str) -> bool:
        """Whether the field is set to true."""
        return self.fields.get(field) is True

    def path(self, field: str) -> Path:
        """The file that the field names."""
        return Path(os.path.normpath(self.folder / self.text(field)))

    def material(self, field: str) -> bytes | None:
        """What ``FIELD-data`` holds in base64, else what the file that ``FIELD`` names holds; None without either."""
        data = self.text(f"{field}-data")
        try:
            if data:
                return base64.b64decode(data, validate=False)
            return self.path(field).read_bytes() if self.text(field) else None
        except binascii.Error as error:
            raise self.error(f"{field}-data", f"not base64 ({error})") from error
        except OSError as error:
            raise self.error(field, f"{error.filename}: {error.strerror}") from error

    def error(self, field: str, problem: str) -> ConfigError:
        """What is wrong with the field, and the remedy."""
        return ConfigError(f"{self.where}.{field}: {problem}; fix this field or choose another --context")


class KubeContext(Struct, frozen=True):
    """One context. ``user`` None: anonymous."""

    cluster_name: str
    cluster: KubeconfigEntry
    user: KubeconfigEntry | None


class _File(Struct, frozen=True):
    path: Path
    data: dict[str, Any]


def kubeconfig_paths(path: Path | None) -> str:
    """``path``, else the environment's, else the user's own."""
    if path is not None:
        return str(path)
    return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def context_names() -> list[str]:
    """Names of the contexts that kubectl would know; none where a file cannot be used."""
    try:
        files = [_read(Path(part).expanduser()) for part in kubeconfig_paths(None).split(os.pathsep) if part]
    except ConfigError:
        return []
    return [entry["name"] for file in files if file is not None for entry in file.data.get("contexts") or ()]


def choose(paths: str, context: str | None) -> KubeContext:
    """The context that is asked for, else the current one, of the files in ``paths``."""
    files = [file for part in paths.split(os.pathsep) if part and (file := _read(Path(part).expanduser())) is not None]
    if not files:
        raise ConfigError(f"{paths}: kubeconfig does not exist; give the right path with --kubeconfig")
    current = next((text for file in files if (text := str(file.data.get("current-context") or ""))), "")
    wanted = context or current
    names = [entry["name"] for file in files for entry in file.data.get("contexts") or ()]
    listed = ", ".join(names[:10]) or "none"
    if not wanted:
        raise ConfigError(f"{paths}: current-context is not set; choose one with --context (known: {listed})")
    if wanted not in names:
        raise ConfigError(f"{paths}: context {wanted!r} is not in contexts (known: {listed}); choose one of them")
    found = _entry(files, "contexts", wanted, "context")
    assert found is not None
    cluster, user = found.text("cluster"), found.text("user")
    if not cluster:
        raise found.error("cluster", "Expected the name of a cluster")
    reached = _entry(files, "clusters", cluster, "cluster")
    if reached is None:
        raise found.error("cluster", f"Expected object with name {cluster} in clusters")
    return KubeContext(cluster, reached, _entry(files, "users", user, "user") if user else None)


def _entry(files: list[_File], section: str, name: str, field: str) -> KubeconfigEntry | None:
    """The first of that name; None where there is none."""
    for file in files:
        for entry in file.data.get(section) or ():
            if entry["name"] == name:
                fields, where = entry.get(field), f"{file.path}: {section}[{name}]"
                if fields is None and section == "users":
                    fields = {}
                if not isinstance(fields, dict):
                    raise ConfigError(f"{where}: Expected key {field}; fix this field or choose another --context")
                return KubeconfigEntry(f"{where}.{field}", fields, file.path.parent.absolute())
    return None


def _read(path: Path) -> _File | None:
    """What a person gets wrong is told before anything is made of it: no YAML, no such shape."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}: kubeconfig cannot be read ({problem}); check the file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = " ".join(str(getattr(error, "problem", None) or "it does not parse").split())
        raise ConfigError(f"{path}: not valid YAML{at}: {problem}; fix the kubeconfig") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: not a kubeconfig (no mapping at the top); give another --kubeconfig")
    for section in SECTIONS:
        entries = data.get(section)
        if not (entries is None or isinstance(entries, list)):
            raise ConfigError(f"{path}: {section} is not a list; fix the kubeconfig")
        for number, entry in enumerate(entries or ()):
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise ConfigError(f"{path}: {section}[{number}] has no name; fix the kubeconfig")
    return _File(path, data)
