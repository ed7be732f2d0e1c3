"""The lab and the twin are wheels of their own, which a mesh needs not. Where one is missing, what needs it says so in
one line.

Nothing here imports them: their commands are loaded by name (``app.py``), their processes are started by name.
"""

from __future__ import annotations

import importlib.util

import click

from shared.errors import ConfigError

WHEELS = {"lab": "conclave-lab", "twin": "conclave-twin"}
"""Of each house: the package at its top, and the wheel that brings it."""


def missing(module: str) -> str | None:
    """The house that ``module`` is of, where that is not installed."""
    house = module.partition(".")[0]
    return house if house in WHEELS and importlib.util.find_spec(house) is None else None


def check_installed(module: str, what: str) -> None:
    """``ConfigError``: ``what`` needs a house that is not installed."""
    house = missing(module)
    if house is not None:
        wheel = WHEELS[house]
        raise ConfigError(f"{what}: {wheel} is not installed; install it beside conclave: pip install {wheel}")


class Elsewhere(click.Command):
    """Stands for a command of a house that is not installed: it is listed, and asked for it says what is missing."""

    def __init__(self, name: str, module: str) -> None:
        house = module.partition(".")[0]
        super().__init__(
            name,
            help=f"Needs {WHEELS[house]}, which is not installed.",
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )
        self._module = module

    def invoke(self, ctx: click.Context) -> None:
        """``ConfigError``, whatever was asked."""
        check_installed(self._module, str(ctx.info_name))
