"""For commands that can ask a server or look into etcd themselves: which of the two is meant.

``--etcd`` and its like mean etcd; a server that is named anywhere means that one; with neither it is etcd's default
address. Naming both on the command line is refused.
"""

from __future__ import annotations

from typing import Any

import click

from services.cli.server.options import NAMES, flags_of, target_if_any
from services.cli.server.target import Target
from shared.errors import ConfigError

ETCD_NAMES = ("etcd", "etcd_prefix", "etcd_ca", "etcd_cert", "etcd_key")


def chosen_server(here: click.Context, *, own: tuple[str, ...] = (), both: tuple[str, ...] = ()) -> Target | None:
    """The server to ask, or None: look into etcd. ``ConfigError``: both are named.

    ``own``: options of the command's own older way, which count as naming etcd does. ``both``: options that belong to
    either way.
    """
    params = {name: value for name, value in here.params.items() if name not in own}
    old = [name for name in (*ETCD_NAMES, *own) if given(here, name)]
    if not old:
        if target_if_any(flags_of(**{name: value for name, value in params.items() if name not in both})) is None:
            return None
        return target_if_any(flags_of(**params))
    new = [name for name in NAMES if name not in (*own, *both) and given(here, name)]
    if new:
        raise ConfigError(f"--{_flag(new[0])}: names a server, --{_flag(old[0])} does not go with it; give one of them")
    return None


def given(here: click.Context, name: str) -> bool:
    """Whether the option stands on the command line."""
    return here.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def etcd_part(options: dict[str, Any]) -> dict[str, Any]:
    """The options of ``etcd_options`` among all."""
    return {name: options[name] for name in ETCD_NAMES}


def _flag(name: str) -> str:
    return name.replace("_", "-")
