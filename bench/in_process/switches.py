"""``--set NAME=VALUE``: a setting of the coordinator's core or, by ``binder.NAME``, of the binder's, for ablations."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from services.binder.core.state import BinderCoreSettings
from services.coordinator.core.state import CoreSettings


def add_argument(parser: argparse.ArgumentParser) -> None:
    """May be repeated."""
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help=__doc__.split(": ", 1)[1])


def settings_of(texts: Sequence[str]) -> tuple[CoreSettings, BinderCoreSettings]:
    """Both cores' settings. ``SystemExit``: there is no such setting, or it has no such value."""
    core, binder = CoreSettings(), BinderCoreSettings()
    for text in texts:
        name, _, value = text.partition("=")
        of_binder, name = name.startswith("binder."), name.removeprefix("binder.")
        changed: CoreSettings | BinderCoreSettings = binder if of_binder else core
        known = {field.name: getattr(changed, field.name) for field in fields(changed)}
        simple = {field: value for field, value in known.items() if isinstance(value, int | float | str)}
        try:
            kind = type(simple[name])
            new: dict[str, Any] = {name: value if kind is str else kind(float(value))}
        except (KeyError, ValueError):
            raise SystemExit(f"--set: {text}: give NAME=VALUE, of {', '.join(simple)}") from None
        if of_binder:
            binder = replace(binder, **new)
        else:
            core = replace(core, **new)
    return core, binder
