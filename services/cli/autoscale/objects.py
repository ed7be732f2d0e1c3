"""ResilientAutoscaler objects as operators reach them: through the API server, with their own kubeconfig and rights.

The autoscaler needs not be asked: what it decided is in each object's status. Errors are one line with the remedy.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from services.cli.listing.wanted import document_text
from services.cli.server.errors import ServerFailed
from services.cli.server.options import cluster_context
from services.cli.terminal.tables import printable
from shared.errors import ConfigError, KubeError, KubeRejected

if TYPE_CHECKING:
    from shared.adapters.kube.api import KubeClient

Json = dict[str, Any]
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

COMPONENT = "k8s/components/autoscaler"


def cluster_options(command: F) -> F:
    """``--kubeconfig``, ``--context`` and ``--namespace``."""
    options = (
        click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False), help="Default: as kubectl's."),
        click.option("--context", default="", help="Of the kubeconfig, or one of 'conclave context list'."),
        click.option("-n", "--namespace", default="", help="Namespace of the object."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def output_option(command: F) -> F:
    """``-o``, as everywhere; text is what table was called."""
    choice = click.Choice(["table", "json", "yaml", "text"])
    return click.option("-o", "--output", type=choice, default="table", show_default=True, help="How to print it.")(
        command
    )


def place(name: str, namespace: str) -> tuple[str, str]:
    """(namespace, name) of ``NAMESPACE/NAME``, or of ``NAME`` and ``--namespace``. ``ConfigError``: they differ."""
    before, slash, after = name.partition("/")
    if not slash:
        return namespace or "default", name
    if namespace and namespace != before:
        raise ConfigError(f"--namespace: {namespace} is not that of {name}; give one of them")
    return before, after


def ask(kubeconfig: Path | None, context: str, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Do ``work`` with a client. ``ConfigError``, ``ServerFailed``: in one line."""
    return asyncio.run(_ask(kubeconfig, context, work))


async def _ask(kubeconfig: Path | None, context: str, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    from shared.adapters.kube.api import KubeClient
    from shared.adapters.kube.config import KubeConfig

    client = KubeClient(await KubeConfig.load(kubeconfig, context=cluster_context(context) or None))
    try:
        return await work(client)
    except KubeRejected as error:
        raise ConfigError(
            f"the API server refuses: {error}; correct what it names, or get the right to do it"
        ) from None
    except KubeError as error:
        raise ServerFailed(f"no answer from the API server ({error}); nobody knows whether it was done") from None
    finally:
        await client.close()


async def read_all(client: KubeClient, namespace: str) -> list[Json]:
    """All objects of a namespace, or of all. ``ConfigError``: the kind is not served."""
    from shared.kube.scaling.autoscaling import AUTOSCALERS

    return list((await _get(client, AUTOSCALERS.path(namespace)))["items"])


async def read_one(client: KubeClient, namespace: str, name: str) -> Json:
    """One object. ``ConfigError``: there is none, or the kind is not served."""
    from shared.kube.scaling.autoscaling import AUTOSCALERS

    listed = await _get(client, AUTOSCALERS.path(namespace))
    for item in listed["items"]:
        if item["metadata"]["name"] == name:
            found: Json = item
            return found
    raise ConfigError(f"{namespace}/{name}: there is no such ResilientAutoscaler; see 'conclave autoscale list'")


async def _get(client: KubeClient, path: str) -> Json:
    try:
        answer = json.loads(await client.read("list resilientautoscalers", path, timeout_s=10.0))
    except KubeRejected as error:
        if error.status == 404:
            raise ConfigError(f"the cluster serves no ResilientAutoscalers: apply {COMPONENT}") from None
        raise
    except ValueError:
        raise ServerFailed("the API server's answer is no JSON; is this a Kubernetes API server?") from None
    return dict(answer)


async def write_spec(client: KubeClient, namespace: str, name: str, uid: str, spec: Json) -> None:
    """Merge fields into the spec of this very object."""
    from shared.kube.scaling.autoscaling import AUTOSCALERS

    patch = {"metadata": {"uid": uid}, "spec": spec}
    await client.patch(AUTOSCALERS, namespace=namespace, name=name, patch=patch, strategy="merge", timeout_s=10.0)


def condition(item: Json, kind: str) -> Json:
    """One condition of the status; empty where it has none."""
    found = [one for one in (item.get("status") or {}).get("conditions") or () if one.get("type") == kind]
    return dict(found[0]) if found else {}


def current(item: Json) -> bool:
    """Whether the status is of this spec."""
    return bool((item.get("status") or {}).get("observedGeneration") == item["metadata"].get("generation"))


def title(item: Json) -> str:
    """``namespace/name``."""
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"


def say(text: str = "") -> None:
    """One line, without what a terminal would act on: the object's texts are not ours."""
    click.echo(printable(text))


def say_document(value: object, output: str) -> None:
    """The value as JSON or YAML."""
    click.echo(document_text(value, output))
