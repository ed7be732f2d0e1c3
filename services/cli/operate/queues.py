"""``conclave queue``: the tree of Queues with what each uses and may use, one of them with who waits in it, and
``conclave queue simulate``: when a job would start, and whom it would displace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from services.cli.listing.kinds import Json, ListKind, Of, number, shown, text
from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import DOCUMENTS, FoundItems, ListQuery
from services.cli.operate.job_file import job_of
from services.cli.server.completion_names import complete_queues
from services.cli.server.options import connector, list_server_options, removed_options
from services.cli.server.watching import output_option, show, watch_option
from services.cli.terminal.tables import NONE, age, count, place_word, printable
from shared.errors import ConfigError
from shared.model.resources import GPU_MILLI, amount_text

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

MANIFEST = click.Path(path_type=Path, allow_dash=True)
CPU, MEMORY = "cpu_millis", "memory_bytes"
NVIDIA_GPU = "nvidia.com/gpu"
OF_NAMESPACE = "-"
"""In place of a Queue's name: that to which the namespace belongs."""
DISPLACED_SHOWN = 10
MOST_MEMBERS = 4096


def _resource(queue: Json, name: str) -> Json:
    return next((one for one in queue.get("resources") or () if one.get("name") == name), {})


def amount(name: str, value: float | None) -> str:
    """An amount of a resource as people write it."""
    if value is None:
        return NONE
    return amount_text(resource_word(name), round(value))


def resource_word(name: str | None) -> str:
    """What people call it."""
    return {CPU: "cpu", MEMORY: "memory"}.get(name or "", name or "")


def quota(one: Json) -> str:
    """``used/guaranteed/maximum`` of one resource."""
    return "/".join(amount(str(one.get("name")), one.get(part)) for part in ("used", "guaranteed", "maximum"))


def _used(name: str) -> Of:
    return lambda queue: _resource(queue, name).get("used")


def _quota(name: str) -> Of:
    return lambda queue: quota(_resource(queue, name)) if _resource(queue, name) else NONE


def _quota_or_none(name: str) -> Of:
    return lambda queue: quota(_resource(queue, name)) if _resource(queue, name) else None


def _others(queue: Json) -> str:
    known = (CPU, MEMORY, GPU_MILLI, NVIDIA_GPU)
    return ", ".join(f"{one['name']} {quota(one)}" for one in queue.get("resources") or () if one["name"] not in known)


def tree_name(queue: Json) -> str:
    """The name, under its parent's."""
    return f"{'  ' * int(queue.get('depth') or 0)}{queue.get('name')}"


def problem_of(queue: Json) -> str | None:
    """What should be corrected of it."""
    return queue.get("problem") or next(iter(queue.get("warnings") or ()), None)


QUEUES = ListKind(
    title="Queue",
    resource="queue",
    empty="there is no Queue: units go by priority and arrival, and no quota holds them; "
    "pods that wait: 'conclave pending'",
    columns=(
        text("NAME", "name", tree_name),
        number("PENDING", lambda queue: queue.get("pending_units", 0)),
        number("HELD", lambda queue: queue.get("blocked_units", 0)),
        number("NO-ROOM", lambda queue: queue.get("parked_units", queue.get("parked_pods", 0))),
        number("PODS", lambda queue: queue.get("pods", 0)),
        number("OF-CLUSTER", "share", lambda queue: f"{queue.get('share') or 0:.1%}"),
        text("BY", lambda queue: resource_word(queue.get("dominant"))),
        number("CPU", _used(CPU), _quota(CPU)),
        number("MEMORY", _used(MEMORY), _quota(MEMORY)),
        number("NVIDIA.COM/GPU", _used(NVIDIA_GPU), _quota_or_none(NVIDIA_GPU), where_any=True),
        number("CONCLAVE.IO/GPU-MILLI", _used(GPU_MILLI), _quota_or_none(GPU_MILLI), where_any=True),
        text("PROBLEM", problem_of, where_any=True, cut=True),
        text("ORDER", "order", wide=True),
        text("STRATEGY", "strategy", wide=True),
        text("WEIGHT", "weight", wide=True),
        text("PARENT", "parent", wide=True),
        text("OTHER-RESOURCES", _others, wide=True),
    ),
)

IN_QUEUE = ListKind(
    title="QueuedUnit",
    resource="unit",
    namespace=lambda unit: unit.get("namespace"),
    columns=(
        number("POSITION", "position"),
        text("NAMESPACE", "namespace"),
        text("UNIT", "name"),
        text("PLACE", "place", shown(place_word, "place")),
        text("SOURCE", "source"),
        number("PODS", "members"),
        number("PRIORITY", "priority"),
        number("WAITING", "waiting_s", shown(age, "waiting_s")),
        text("REASON", "reason", cut=True),
        text("HELD-BACK-BY", "blocked", cut=True),
    ),
)

LEGEND = "used/guaranteed/maximum; - is no such limit. Pods that wait: 'conclave pending', one by one 'pending-pods'."


class QueueCommand(click.Group):
    """``conclave queue [NAME]`` shows; only where its first word is another command of it, that one runs."""

    default = "show"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the command in that may be left out."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


@click.group(cls=QueueCommand)
def queue() -> None:
    """Show the Queues, or one by its name; ``simulate`` says when a job would start.

    Without a command it is ``show``: ``conclave queue``, ``conclave queue NAME``, with kubectl's options.
    """


@queue.command("show")
@click.argument("name", required=False, shell_complete=complete_queues)
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many; default: all.")
@watch_option
@list_options(QUEUES)
@removed_options("--place", instead="pods of the scheduling queue are listed by 'conclave pending-pods --place'")
def show_queues(name: str | None, watch: bool, wanted: ListQuery, **server: Any) -> None:
    """List the Queues as a tree: use, guarantee, maximum, who waits; with NAME show one and its units in turn."""

    async def every(client: AdminClient) -> FoundItems:
        return FoundItems(await client.items("/v1/queues", most=wanted.limit))

    connect = connector(server)
    if name is None:
        show_list(connect, every, wanted, watch=watch, head=lambda found: [LEGEND] if found.items else [])
        return
    path = f"/v1/queues/{quote(name, safe='')}"

    async def one(client: AdminClient) -> dict[str, Any]:
        return QUEUES.object(await client.get(path))

    async def one_listed(client: AdminClient) -> FoundItems:
        return FoundItems([await client.get(path)])

    if wanted.output == "name":
        show_list(connect, one_listed, wanted, watch=watch)
    else:
        show(connect, one, queue_lines, output=wanted.output if wanted.output in DOCUMENTS else "table", watch=watch)


@queue.command()
@click.argument("name", required=False, shell_complete=complete_queues)
@click.option("-f", "--filename", type=MANIFEST, help="A Job, PodGroup or pod as YAML; - for stdin.")
@click.option("-n", "--namespace", default="", help="Of the job.  [default: the file's, or default]")
@click.option("--members", type=click.IntRange(1, MOST_MEMBERS), help="Pods of the job.  [default: the file's, or 1]")
@click.option("--min-count", type=click.IntRange(1, MOST_MEMBERS), help="So many run at once, or none.  [default: all]")
@click.option(
    "--request", "requests", multiple=True, metavar="NAME=AMOUNT", help="Of each member, as cpu=2; repeatable."
)
@click.option("--priority", type=int, help="The job's.  [default: the file's, or 0]")
@output_option
@list_server_options
def simulate(name: str | None, filename: Path | None, output: str, requests: tuple[str, ...], **given: Any) -> None:
    """Say when a job would start in the Queue NAME, and whom it would displace; nothing is created.

    Without NAME it is the Queue that the file's pods name by the label conclave.io/queue, or that of the namespace.
    """
    told = {key: given.pop(key) for key in ("namespace", "members", "min_count", "priority")}
    job = job_of(filename) if filename is not None else {}
    of_file = job.pop("queue", "")
    if not (name or of_file or told["namespace"] or filename is not None):
        raise ConfigError("NAME: which Queue? name one, give a file, or -n with a namespace that belongs to one")
    query = job | {key: value for key, value in told.items() if value not in (None, "")}
    query["requests"] = requests_text([*str(query.get("requests", "")).split(","), *requests])
    query["minCount"] = query.pop("min_count", "")
    path = f"/v1/queues/{quote(name or of_file or OF_NAMESPACE, safe='')}/simulate"

    async def look(client: AdminClient) -> dict[str, Any]:
        return await client.get(path, **query)

    show(connector(given), look, simulated_lines, output=output, watch=False)


def requests_text(pairs: Sequence[str]) -> str:
    """``cpu=2,memory=4Gi``: a later word for a resource wins. ``ConfigError``: one is no pair."""
    found: dict[str, str] = {}
    for pair in filter(None, pairs):
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"--request: {pair!r} is not NAME=AMOUNT; write cpu=2 or memory=4Gi")
        found[name.strip()] = value.strip()
    return ",".join(f"{name}={value}" for name, value in found.items())


def queue_lines(queue: Json) -> list[str]:
    """One queue: what it may use, and the units that wait in it."""
    lines = [f"{' / '.join(printable(str(name)) for name in queue.get('path') or [queue.get('name')])}"]
    if queue.get("problem"):
        lines.append(f"  problem    {printable(str(queue['problem']))}")
    lines += [f"  warning    {printable(str(one))}" for one in queue.get("warnings") or ()]
    if queue.get("deleting"):
        lines.append("  deleting   it is being deleted; its units wait")
    waiting, held = queue.get("pending_units", 0), queue.get("blocked_units", 0)
    parked = f"for {_counted(queue)} no node has room"
    lines += [
        f"  order      {queue.get('order')} within it, {queue.get('strategy')} between those below it",
        f"  weight     {queue.get('weight')}; {_of_cluster(queue)}",
        f"  waiting    {count(waiting, 'unit')}, {held} of them held back; {parked}",
        f"  running    {count(queue.get('pods', 0), 'pod')}",
    ]
    if queue.get("namespaces"):
        lines.append(f"  namespaces {', '.join(printable(str(one)) for one in queue['namespaces'])}")
    if queue.get("children"):
        lines.append(f"  below it   {', '.join(printable(str(one)) for one in queue['children'])}")
    for word, name in (("borrowing", "borrowing"), ("lending", "lending")):
        if queue.get(name) is not None:
            lines.append(f"  {word:<10} at most {_amounts(queue[name])}")
    if queue.get("reclaim"):
        after = f"after {age(queue['reclaim_after_s'])}" if queue.get("reclaim_after_s") else "at once"
        lines.append(f"  reclaim    what it lent is taken back {after}")
    if queue.get("min_run_s"):
        lines.append(f"  protected  what it borrows runs for {age(queue['min_run_s'])} at least")
    if queue.get("half_life_s") is not None:
        lines.append(
            f"  history    past use counts, halved every {age(queue['half_life_s'])}: {_amounts(queue['past'])}"
        )
    resources: Sequence[Json] = queue.get("resources") or ()
    if resources:
        lines += ["", *RESOURCES.lines(resources)]
    units: Sequence[Json] = queue.get("units") or ()
    return [*lines, "", *(IN_QUEUE.lines(units) if units else ["nothing waits in it"])]


def _counted(queue: Json) -> str:
    pods = count(queue.get("parked_pods", 0), "pod")
    return pods if queue.get("parked_units") is None else f"{count(queue['parked_units'], 'unit')} ({pods})"


def _of_cluster(queue: Json) -> str:
    """The largest part of the cluster that it uses."""
    if not queue.get("dominant"):
        return "uses nothing"
    return f"uses {queue.get('share') or 0:.1%} of the cluster's {resource_word(queue['dominant'])}"


def _of(part: str) -> Of:
    return lambda one: amount(str(one.get("name")), one.get(part))


RESOURCES = ListKind(
    title="QueueResource",
    resource="resource",
    columns=(
        text("RESOURCE", lambda one: resource_word(one.get("name"))),
        number("USED", "used", _of("used")),
        number("GUARANTEED", "guaranteed", _of("guaranteed")),
        number("MAXIMUM", "maximum", _of("maximum")),
        number("BORROWED", "borrowed", lambda one: _of("borrowed")(one) if one.get("guaranteed") is not None else NONE),
        number("OF-CLUSTER", "share", lambda one: NONE if one.get("share") is None else f"{one['share']:.1%}"),
    ),
)


def simulated_lines(found: Json) -> list[str]:
    """When the job would start, what is in its way, and who would leave for it."""
    lines = [f"{printable(str(found.get('queue')))}: {printable(str(found.get('summary')))}"]
    if found.get("blocked") and found["blocked"] not in lines[0]:
        lines.append(printable(f"  quota      {found['blocked']}"))
    room = f"{found.get('fits')} of {found.get('members')} members fit on the nodes as they are"
    if found.get("fits") is not None and room not in lines[0]:
        lines.append(f"  room       {room}")
    displaced: Sequence[Json] = found.get("displaced") or ()
    for one in displaced[:DISPLACED_SHOWN]:
        told = f"{one.get('pod')} on {one.get('node')}, queue {one.get('queue') or NONE}"
        told += f", priority {one.get('priority')}"
        lines.append(printable(f"  displaces  {told}"))
    if len(displaced) > DISPLACED_SHOWN:
        lines.append(f"             and {len(displaced) - DISPLACED_SHOWN} more pods")
    return lines


def _amounts(amounts: Mapping[str, Any] | None) -> str:
    found = [f"{resource_word(name)} {amount(name, value)}" for name, value in (amounts or {}).items()]
    return printable(", ".join(found)) or "nothing"
