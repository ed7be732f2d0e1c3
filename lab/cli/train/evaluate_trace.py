"""``conclave evaluate --trace``: any pod list and node list of openb's format, by one policy, over some seeds.

Placements go to a file beside the one asked for and take its name only when all seeds are done, so that a file that is
there is whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from lab.evaluation.results import Progress, SuiteResult
from lab.suites.suites import SuiteInput
from lab.worlds.placement.trace_run import (
    PLACEMENTS_HEADER,
    metrics_of,
    parse_lists,
    placement_rows,
    play,
    scorer_of,
)
from services.cli.inputs import read_trace
from services.cli.terminal.output_file import write_whole
from shared.policy.frag.value import NAME as FRAG
from shared.policy.rehearsal.episode import RehearsedEpisode
from shared.policy.rehearsal.rehearsal import rehearse
from shared.policy.weights import WeightsFile

REMEDY = "give a file of openb's format"
NOTES = (
    "allocated_130: percent of all GPU thousandths allocated when pods asking for 130 % had been submitted",
    "placements: order and pod_row count from 0; pod_row is the row of the pod list under its header",
)


def evaluate_files(
    trace: Path,
    nodes: Path,
    *,
    policy: str,
    seeds: Sequence[int],
    command: str,
    placements: Path | None,
    progress: Progress,
    learned: Mapping[str, WeightsFile] | None = None,
    rehearses: bool = True,
) -> SuiteResult:
    """Place the pods of ``trace`` on ``nodes`` by ``policy``, once per seed; rows of all seeds go to ``placements``.

    ``learned``: weights by policy, in place of the shipped ones. ``rehearses``: frag may leave the trace to FGD.

    Raises ``ConfigError`` naming the file, line and column it cannot use, or the policy.
    """
    parsed = parse_lists(
        read_trace("--trace", trace, REMEDY), str(trace), read_trace("--nodes", nodes, REMEDY), str(nodes)
    )
    given = SuiteInput(seeds, command, weights=learned or {})
    weights = given.learned([policy] if policy == FRAG else []).get(FRAG)
    scorer_of(policy, parsed, weights)
    placed_by = policy
    notes: tuple[str, ...] = NOTES
    if weights is not None and rehearses:
        rehearsal = rehearse(parsed, weights, tick=partial(progress, 0, len(seeds), f"{policy}, rehearsal"))
        placed_by, notes = rehearsal.policy, (*NOTES, rehearsal.told())
    episodes: list[RehearsedEpisode] = []
    lines = [PLACEMENTS_HEADER]
    for done, seed in enumerate(seeds):
        tick = partial(progress, done, len(seeds), f"{policy}, seed {seed}")
        episode = play(parsed, placed_by, seed, weights=weights, tick=tick)
        if placements is not None:
            lines.extend(placement_rows(parsed, episode))
        episodes.append(episode)
    progress(len(seeds), len(seeds), "done")
    if placements is not None:
        write_whole("--placements", placements, ("\n".join(lines) + "\n").encode())
    return SuiteResult(
        suite=f"trace {trace.name}",
        command=command,
        seeds=tuple(seeds),
        policies={policy: metrics_of(episodes)},
        card_digests={FRAG: weights.sha256} if weights is not None else {},
        notes=notes,
    )
