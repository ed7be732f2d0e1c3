"""``conclave pki etcd-roles``: a user and a role per service in etcd, and authentication on.

It runs with the certificate of etcd's ``root``, and says so before it changes anything: with authentication on and no
root at hand, nobody could undo it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from services.cli.etcd import etcd_options, settings_of
from services.cli.pki.files import read_certificates
from shared.adapters.peers.certificates import name_of
from shared.errors import ConfigError, StoreError, StoreRejected
from shared.wire.etcd_roles import ROOT, EtcdUser, users_of

RETRY_S = 2.0


@click.command("etcd-roles")
@etcd_options
@click.option("--agent", "agents", multiple=True, help="Id of an agent with a user of its own; may be repeated.")
@click.option("--wait-s", type=click.IntRange(0, 3600), default=0, help="Try again so long while etcd does not answer.")
def etcd_roles(agents: tuple[str, ...], wait_s: int, **etcd: Any) -> None:
    """Give etcd a user and role per service, and switch authentication on. Running it again changes nothing.

    Needs --etcd-cert and --etcd-key of the user root (conclave pki issue etcd-client root); the services' certificates
    name their users: coordinator, binder, agent, learner, jobs, autoscaler, rebalancer, cli-admin.
    """
    from shared.runtime.process.process import keys_of

    settings = settings_of(**etcd)
    _check_root(settings.etcd_ca, settings.etcd_cert)
    try:
        users = users_of(keys_of(settings), agents)
    except ValueError as error:
        raise ConfigError(f"--agent: {error}") from None
    changes = asyncio.run(_apply(settings, users, wait_s))
    for change in changes:
        click.echo(change)
    click.echo(f"authentication is on; {len(users)} users" if changes else f"nothing to change; {len(users)} users")


def _check_root(ca: Path | None, cert: Path | None) -> None:
    if ca is None or cert is None:
        raise ConfigError("--etcd-ca, --etcd-cert, --etcd-key: users are known by their certificates; give all three")
    name = name_of(read_certificates(cert, "make it with conclave pki issue etcd-client root")[0])
    if name != ROOT:
        raise ConfigError(
            f"--etcd-cert: {cert} is {name or 'nobody'}'s, and only {ROOT} may do this: once authentication is on, "
            f"nobody else could undo it; make one with conclave pki issue etcd-client {ROOT}"
        )


async def _apply(settings: Any, users: tuple[EtcdUser, ...], wait_s: int) -> list[str]:
    """The changes made. ``ConfigError``: etcd does not answer within ``wait_s``, or refuses."""
    from shared.adapters.etcd.auth import EtcdAuth
    from shared.adapters.etcd.channel import EtcdSettings, EtcdTls

    tls = EtcdTls(ca_file=settings.etcd_ca, cert_file=settings.etcd_cert, key_file=settings.etcd_key)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    where = ",".join(settings.etcd)
    while True:
        auth = EtcdAuth(EtcdSettings(endpoints=settings.etcd, tls=tls))
        try:
            return await auth.apply(users)
        except StoreRejected as error:
            raise ConfigError(
                f"--etcd: {where} refuses ({error}); is --etcd-cert root's, and etcd 3.4 or newer?"
            ) from None
        except StoreError as error:
            if loop.time() >= deadline:
                raise ConfigError(f"--etcd: no answer from {where} ({error}); start it, or correct --etcd") from None
            click.echo(f"{where} does not answer yet ({error})", err=True)
        finally:
            await auth.close()
        await asyncio.sleep(RETRY_S)
