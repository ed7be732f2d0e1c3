"""Settings of a process: a frozen dataclass filled from defaults < TOML file < environment < flags.

Services declare their own dataclasses; this file is the machinery. Ranges are types
(``Annotated[int, msgspec.Meta(ge=1)]``), the text for ``--help`` is the docstring after each field, and an unknown
key is an error that names the nearest known one, because a misspelt setting that is silently ignored is an outage
later. Fields may be dataclasses themselves: then ``http.port`` in TOML is ``[http] port``, in the environment
``CONCLAVE_HTTP_PORT`` and as a flag ``--http-port``. It refuses to read secrets from anywhere but files: a setting
names the file.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shared.errors import ConfigError
from shared.runtime.observe.masking import MASK

S = TypeVar("S")

ENV_PREFIX = "CONCLAVE_"
NOT_SETTINGS = frozenset(
    ENV_PREFIX + name for name in ("SHARED", "FAILPOINT", "CONFIG", "CONTEXTS", "SERVER", "ETCD_BINARY")
)
"""Variables of ours that are no service's settings: tests' data, failpoints, where the TOML file is, which server an
operator's command line speaks to, and which etcd ``conclave up`` runs beside the services, which inherit its own."""

SERVICES = (
    "AGENT", "AUTOSCALER", "BINDER", "CLI", "CONTROLLERS", "COORDINATOR", "EXTENDER", "JOBS", "LEARNER", "REBALANCER",
    "SENSOR", "SINGLE", "TWIN",
)  # fmt: skip
"""``CONCLAVE_AGENT_X`` is X for agents alone; every other service skips it. One environment may serve all."""

OF_SEVERAL = frozenset(
    ENV_PREFIX + name
    for name in (
        "CONTEXT", "DECIDE_EVERY_S", "GPU_SHARES", "HUNG_AFTER_S", "KUBECONFIG", "LOAD_PARTS", "PLUGINS", "POLICY",
        "POWER_CURVES", "PROFILES", "PROMETHEUS", "PROMETHEUS_CA", "PROMETHEUS_TOKEN_FILE", "SCHEDULER_NAME", "SEED",
        "STANDBY", "UNKNOWN_ZONES", "VALIDATE", "WORKLOAD_SPEED",
    )
)  # fmt: skip
"""Settings that several services have and others have not: in an environment that serves all, those skip them. What one
service alone has is given to it as ``CONCLAVE_AGENT_X``."""

SERVICE_LINK = re.compile(r".*(_SERVICE_HOST|_SERVICE_PORT(_[A-Z0-9_]+)?|_PORT|_PORT_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)")
"""What the kubelet puts into every container for each Service: CONCLAVE_COORDINATOR_PORT=tcp://... is not ours."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One setting: where it lies (``("http", "port")``), its type with range, and its default."""

    path: tuple[str, ...]
    type: Any
    default: Any
    required: bool
    secret: bool
    owner: type
    name: str

    @property
    def dotted(self) -> str:
        """As in error messages and TOML."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """As on the command line, without the dashes in front."""
        return "-".join(self.path).replace("_", "-")

    @property
    def env(self) -> str:
        """As in the environment."""
        return ENV_PREFIX + "_".join(self.path).upper()


def leaves(cls: type, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """All settings of a settings class, sections flattened, in order of declaration."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for item in dataclasses.fields(cls):
        kind, here = hints[item.name], (*path, item.name)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from leaves(kind, here)
            continue
        default: Any = None
        if item.default is not dataclasses.MISSING:
            default = item.default
        elif item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        yield Leaf(here, kind, default, required, bool(item.metadata.get("secret")), cls, item.name)


def load(
    cls: type[S],
    *,
    service: str = "",
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> S:
    """The settings, checked. ``flags`` are keyed by dotted name (``http.port``) or flag (``http-port``).

    ``cls.COMPOSES``, where it has that: services that share this process, each with what is called otherwise here of
    its settings. A variable of one of them alone is refused, unless the same setting is given to this process.

    Raises ``ConfigError`` in one line: which key, from where, what is wrong, and what to write instead.
    """
    known = {leaf.dotted: leaf for leaf in leaves(cls)}
    composes: Mapping[str, Mapping[str, str]] = getattr(cls, "COMPOSES", {})
    given: dict[str, tuple[Any, str]] = {}
    if file is not None:
        given.update(_from_file(file, known))
    given.update(_from_environment(environ or {}, service, known, composes))
    by_flag = {leaf.flag: leaf.dotted for leaf in known.values()}
    for key, value in (flags or {}).items():
        dotted = by_flag.get(key, key)
        if dotted not in known:
            raise ConfigError(f"--{key}: unknown flag{_nearest(key, by_flag, '--')}")
        given[dotted] = (value, f"--{known[dotted].flag}")
    values = {dotted: _convert(known[dotted], raw, source) for dotted, (raw, source) in given.items()}
    for leaf in known.values():
        if leaf.required and leaf.dotted not in values:
            raise ConfigError(f"{leaf.dotted}: not set; give --{leaf.flag} or {leaf.env}")
    return _build(cls, values, ())


def parse_flags(cls: type, arguments: Sequence[str]) -> tuple[dict[str, Any], Path | None]:
    """``--name value`` or ``--name=value`` into ``flags`` of ``load``, and the path given by ``--config``.

    A boolean may stand alone (``--verbose``) or be negated (``--no-verbose``).
    """
    known = {leaf.flag: leaf for leaf in leaves(cls)}
    flags: dict[str, Any] = {}
    file: Path | None = None
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--"):
            raise ConfigError(f"{argument}: unexpected argument; settings are given as --name value")
        name, has_value, value = argument[2:].partition("=")
        negated = name.removeprefix("no-")
        if name not in known and name != "config" and negated in known and _is_bool(known[negated]) and not has_value:
            flags[known[negated].dotted] = False
            continue
        if name not in known and name != "config":
            raise ConfigError(f"--{name}: unknown flag{_nearest(name, [*known, 'config'], '--')}")
        if not has_value:
            if name in known and _is_bool(known[name]) and (not rest or rest[0].startswith("--")):
                flags[known[name].dotted] = True
                continue
            if not rest:
                raise ConfigError(f"--{name}: a value must follow")
            value = rest.pop(0)
        if name == "config":
            file = Path(value)
        else:
            flags[known[name].dotted] = value
    return flags, file


def describe(cls: type) -> list[tuple[Leaf, str]]:
    """Every setting with the docstring after its field, for ``--help`` and the docs."""
    import ast
    import inspect
    import textwrap

    texts: dict[tuple[type, str], str] = {}
    owners = {leaf.owner for leaf in leaves(cls)}
    # a field may be inherited: its docstring stands in the base that declares it
    declared = [(owner, base) for owner in owners for base in owner.__mro__ if dataclasses.is_dataclass(base)]
    for owner, base in reversed(declared):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field_node, text_node in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field_node, ast.AnnAssign)
                and isinstance(field_node.target, ast.Name)
                and isinstance(text_node, ast.Expr)
                and isinstance(text_node.value, ast.Constant)
                and isinstance(text_node.value.value, str)
            ):
                texts[owner, field_node.target.id] = inspect.cleandoc(text_node.value.value)
    return [(leaf, texts.get((leaf.owner, leaf.name), "")) for leaf in leaves(cls)]


def help_text(kind: type, service: str) -> str:
    """The text of ``--help``: every flag, its environment variable, default and meaning."""
    lines = [f"Usage: python -m services.{service} [--config FILE] [--SETTING VALUE]...", ""]
    for leaf, text in describe(kind):
        default = "required" if leaf.required else f"default {leaf.default!r}"
        lines += [f"  --{leaf.flag}  ({leaf.env}; {default})", f"      {' '.join(text.split())}"]
    return "\n".join(lines) + "\n"


def _from_file(file: Path, known: Mapping[str, Leaf]) -> dict[str, tuple[Any, str]]:
    import tomllib

    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: settings file cannot be read ({error.strerror}); check --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from error
    given: dict[str, tuple[Any, str]] = {}
    sections = {".".join(leaf.path[:depth]) for leaf in known.values() for depth in range(1, len(leaf.path))}

    def walk(table: Mapping[str, Any], path: tuple[str, ...]) -> None:
        for key, value in table.items():
            dotted = ".".join((*path, key))
            if dotted in known:
                given[dotted] = (value, f"{file}: {dotted}")
            elif dotted in sections and isinstance(value, dict):
                walk(value, (*path, key))
            else:
                raise ConfigError(f"{file}: {dotted}: unknown setting{_nearest(dotted, known)}")

    walk(data, ())
    return given


def _from_environment(
    environ: Mapping[str, str], service: str, known: Mapping[str, Leaf], composes: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[Any, str]]:
    by_env = {leaf.env: leaf.dotted for leaf in known.values()}
    own = f"{ENV_PREFIX}{service.upper()}_" if service else ""
    shared: dict[str, tuple[Any, str]] = {}
    particular: dict[str, tuple[Any, str]] = {}
    for name, value in environ.items():
        if not name.startswith(ENV_PREFIX) or name in NOT_SETTINGS:
            continue
        if name in by_env and not value.startswith("tcp://"):
            shared[by_env[name]] = (value, name)
            continue
        if own and name.startswith(own) and (general := ENV_PREFIX + name.removeprefix(own)) in by_env:
            particular[by_env[general]] = (value, name)
            continue
        others = [f"{ENV_PREFIX}{other}_" for other in SERVICES if other.lower() not in (service, *composes)]
        of_another = any(name.startswith(other) and not _misspelt(name, other, by_env) for other in others)
        setting = _called_here(name, composes)
        here = f"{own or ENV_PREFIX}{setting}"
        if of_another or name in OF_SEVERAL or SERVICE_LINK.fullmatch(name) or (setting and here in environ):
            continue
        if ENV_PREFIX + setting in by_env:
            raise ConfigError(f"{name}: is for a process of that service alone; give {here} here")
        raise ConfigError(f"{name}: unknown setting in the environment{_nearest(name, by_env)}")
    return {**shared, **particular}


def _called_here(name: str, composes: Mapping[str, Mapping[str, str]]) -> str:
    """The setting here that a variable of a service is for which shares this process; empty: it is none."""
    for service, otherwise in composes.items():
        setting = name.removeprefix(f"{ENV_PREFIX}{service.upper()}_")
        if setting != name:
            return otherwise.get(setting, setting)
    return ""


def _misspelt(name: str, prefix: str, names: Iterable[str]) -> bool:
    """Whether it is nearly a setting of our own that begins as another service's do (agents have ``sensor_...``)."""
    import difflib

    return bool(difflib.get_close_matches(name, [one for one in names if one.startswith(prefix)], n=1, cutoff=0.93))


def _nearest(key: str, names: Mapping[str, Any] | Sequence[str], prefix: str = "") -> str:
    import difflib

    close = difflib.get_close_matches(key, list(names), n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else "; see --help for the known ones"


def _is_bool(leaf: Leaf) -> bool:
    return leaf.type is bool


def _convert(leaf: Leaf, raw: Any, source: str) -> Any:
    kind = leaf.type
    if isinstance(raw, str) and typing.get_origin(_bare(kind)) in (tuple, list, frozenset):
        raw = [part.strip() for part in raw.split(",") if part.strip()]
    try:
        value = msgspec.convert(raw, kind, strict=False, dec_hook=_from_text)
    except (msgspec.ValidationError, ValueError) as error:
        shown = MASK if leaf.secret else repr(raw)[:80]
        problem = str(error)
        raise ConfigError(f"{source}: {shown} cannot be used: {problem[:1].lower()}{problem[1:]}") from error
    if isinstance(value, float) and value != value:
        raise ConfigError(f"{source}: NaN cannot be used; give a number")
    return value


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind


def _from_text(kind: type, raw: Any) -> Any:
    if kind is Path and isinstance(raw, str):
        return Path(raw).expanduser()
    raise ValueError(f"cannot make {kind.__name__} of it")


def _build(cls: type[S], values: Mapping[str, Any], path: tuple[str, ...]) -> S:
    hints = typing.get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for item in dataclasses.fields(cls):  # type: ignore[arg-type]  # S is a dataclass by contract of load
        here = (*path, item.name)
        dotted = ".".join(here)
        kind = hints[item.name]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            arguments[item.name] = _build(kind, values, here)
        elif dotted in values:
            arguments[item.name] = values[dotted]
    try:
        return cls(**arguments)
    except ValueError as error:  # a cross-check in __post_init__, which names the fields itself
        raise ConfigError(str(error)) from error
