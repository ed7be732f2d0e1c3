"""The options of every command that looks into a mesh's etcd, and what is opened with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from services.cli.server.errors import ServerFailed
from shared.errors import ConfigError, StoreError
from shared.wire.keys import DEFAULT_PREFIX, Keys

if TYPE_CHECKING:
    from shared.ports import Store
    from shared.runtime.process.process import ProcessSettings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = (
    click.option("--etcd", default="http://127.0.0.1:2379", show_default=True, help="Endpoints, comma-separated."),
    click.option("--etcd-prefix", default=DEFAULT_PREFIX, show_default=True, help="Where the mesh keeps its keys."),
    click.option("--etcd-ca", type=click.Path(path_type=Path), help="CA bundle (PEM) for https endpoints."),
    click.option("--etcd-cert", type=click.Path(path_type=Path), help="Our certificate (PEM)."),
    click.option("--etcd-key", type=click.Path(path_type=Path), help="The key of --etcd-cert (PEM)."),
)


def etcd_options(command: F) -> F:
    """``--etcd``, ``--etcd-prefix`` and the TLS files; the command gets them as keyword arguments."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def settings_of(
    etcd: str, etcd_prefix: str, etcd_ca: Path | None, etcd_cert: Path | None, etcd_key: Path | None
) -> ProcessSettings:
    """The options as settings. ``ConfigError``: they do not go together."""
    from shared.runtime.process.process import ProcessSettings

    endpoints = tuple(part.strip() for part in etcd.split(",") if part.strip())
    try:
        return ProcessSettings(
            etcd=endpoints, etcd_prefix=etcd_prefix, etcd_ca=etcd_ca, etcd_cert=etcd_cert, etcd_key=etcd_key
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


async def with_store(settings: ProcessSettings, work: Callable[[Store, Keys], Awaitable[T]]) -> T:
    """Do ``work`` with a connection. ``ServerFailed``: etcd does not answer; a change may have been made."""
    from shared.runtime.process.process import keys_of, store_opener

    keys = keys_of(settings)
    store = store_opener(settings)()
    try:
        return await work(store, keys)
    except StoreError as error:
        raise ServerFailed(
            f"--etcd: no answer from {','.join(settings.etcd)} ({error}); start it or mend --etcd"
        ) from None
    finally:
        await store.close()
