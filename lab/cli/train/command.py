"""``conclave train POLICY``: starts the trainer as a process of its own and passes on how it ended.

Why a process: torch lives in the learner alone, and the command line imports no service. The trainer shows its own
progress; Ctrl-C reaches it too, so that it leaves a checkpoint from which ``--resume`` goes on. Exit codes: the
trainer's own; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from lab.evaluation.seeds import parse_seeds
from shared.errors import ConfigError
from shared.jobs.registry import POLICIES
from shared.runtime.process.linux import die_with_parent

TRAINER = "lab.learner"
FIRST_TRAINING_SEED = 1000
"""Seeds below are for choosing (500-509) and for reporting (42-51): a policy never sees them in training."""
STOP_S = 30.0
"""How long a trainer may take to write its checkpoint before it is killed."""
EXIT_INTERRUPTED = 130
NEEDED = ("torch", "gymnasium", "pettingzoo", "tensorboard")
KUBE_DEFAULT = "kube-default"
OF_JOBS = "jobs-dl2"
FILE = click.Path(path_type=Path)


@click.command()
@click.argument("policy")
@click.option("--seeds", help="Training seeds, as in 1000-1063; default: those on the policy's card.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for weights, card and curves.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in --out.")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes to train in; default 1.")
@click.option("--ray", help="Play episodes on the Ray cluster at this address, or local; extra ray.")
@click.option(
    "--warm-up", help="First imitate kube-default, or FILE (a capture). jobs-dl2: a rule for jobs, or a schedule."
)
@click.option("--steps", type=click.IntRange(min=1), help="How long, in the trainer's own steps; default: as shipped.")
@click.option("--mixture", help="hybrid: which policies are mixed: POLICY=WEIGHT,POLICY=WEIGHT or a definition's file.")
@click.option("--series", type=FILE, help="services-twin: the recorded series of a service graph, CSV.")
@click.option(
    "--topology", type=FILE, help="services-twin, karma: a service graph of your own; default: KARMA's chain."
)
@click.option("--trace", type=FILE, help="karma: a load of your own to train on, as of evaluate.")
@click.option("--twin", type=FILE, help="karma: train in this learned twin, a folder of 'train services-twin'.")
@click.option("--reward", help="ee, el, lb, hybrid: learn from this expression or plug-in, not the shipped reward.")
@click.option("--signal", "signals", multiple=True, help="NAME=QUERY: a value that --reward reads; repeatable.")
@click.option("--prometheus", help="Who is asked for signals.")
@click.option("--prometheus-token-file", type=click.Path(path_type=Path), help="A bearer token for it.")
@click.option("--agents", type=click.Choice(["multi", "single"]), help="karma: an agent for each service, or one.")
@click.option("--roles", type=click.Choice(["hard", "soft", "none"]), help="karma: how its roles bind; default hard.")
@click.option("--missions", type=click.Choice(["on", "off"]), help="karma: whether they are rewarded; as its roles.")
@click.option("--start", type=click.Choice(["imitation", "scratch"]), help="karma: with or without the rule by demand.")
@click.option("--episode-seconds", type=click.IntRange(120, 7200), help="karma: of a training episode; default 1800.")
@click.option("--trials", type=click.IntRange(1, 1000), help="karma: look for settings first, by short trainings.")
@click.option("--organisation", type=FILE, help="karma: roles and missions of your own, YAML.")
@click.option("--attacker", type=float, help="karma: in this share of the episodes an attacker learns along.")
@click.option("--attacker-budget", type=float, help="Its unwanted requests for each genuine one; default 0.3.")
@click.option("--attacker-rate", type=float, help="At most so many times the genuine requests at once; default 4.")
@click.option("--attacker-plain", is_flag=True, help="Its requests cost no more work than genuine ones.")
@click.option(
    "--cluster",
    type=FILE,
    help="Learn on the cluster of this file of 'conclave twin capture': ee, el, frag, lb, marl-dqn.",
)
@click.option(
    "--algorithm", type=click.Choice(["dqn", "double", "distributional", "ppo"]),
    help="What ee, el, lb, marl-dqn learn by; default: what their recipe found best.",
)  # fmt: skip
@click.option("--per", metavar="LABEL", help="marl-dqn on --cluster: a network for the nodes of each value of LABEL.")
def train(
    policy: str,
    seeds: str | None,
    out: Path | None,
    resume: bool,
    workers: int | None,
    ray: str | None,
    warm_up: str | None,
    steps: int | None,
    mixture: str | None,
    series: Path | None,
    topology: Path | None,
    trace: Path | None,
    twin: Path | None,
    reward: str | None,
    signals: tuple[str, ...],
    prometheus: str | None,
    prometheus_token_file: Path | None,
    cluster: Path | None,
    algorithm: str | None,
    per: str | None,
    attacker_plain: bool,
    **of_karma: str | int | float | Path | None,
) -> int:
    """Train POLICY on the twin and leave weights, card and curves in --out (default: training/POLICY)."""
    folder = out if out is not None else Path("training") / policy
    flags = [policy, "--out", str(folder)]
    if seeds is not None:
        low = [seed for seed in parse_seeds(seeds) if seed < FIRST_TRAINING_SEED]
        if low:
            raise ConfigError(
                f"--seeds: {low[0]} is kept for choosing and reporting; train on {FIRST_TRAINING_SEED} and above"
            )
        flags += ["--seeds", seeds]
    if warm_up is not None:
        known = (KUBE_DEFAULT,) if policy != OF_JOBS else tuple(sorted(POLICIES))
        if warm_up not in known and not Path(warm_up).is_file():
            raise ConfigError(f"--warm-up: {warm_up!r} is neither a file nor of {', '.join(known)}; give one of them")
        flags += ["--warm-up", warm_up]
    if resume:
        flags.append("--resume")
    passed_on: dict[str, object] = {
        "--workers": workers, "--ray": ray, "--steps": steps, "--mixture": mixture, "--reward": reward,
        "--prometheus": prometheus, "--prometheus-token-file": prometheus_token_file, "--series": series,
        "--topology": topology, "--trace": trace, "--twin": twin, "--cluster": cluster, "--algorithm": algorithm,
        "--per": per,
    }  # fmt: skip
    passed_on |= {f"--{name.replace('_', '-')}": value for name, value in of_karma.items()}
    for flag, value in passed_on.items():
        if value is not None:
            flags += [flag, str(value)]
    if attacker_plain:
        flags.append("--attacker-plain")
    for named in signals:
        flags += ["--signal", named]
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"train: {' and '.join(missing)} missing; install the extra: pip install 'conclave-scheduler[learn]'"
            " --extra-index-url https://download.pytorch.org/whl/cpu"
        )
    started_s = time.monotonic()
    code = run_child([sys.executable, "-m", TRAINER, "train", *flags])
    if code == 0:
        click.echo(f"{policy}: trained in {time.monotonic() - started_s:.0f} s, in {folder}")
    return code


def run_child(argv: list[str], *, stop_s: float = STOP_S) -> int:
    """The exit code of ``argv``, which shares our terminal. On Ctrl-C or SIGTERM it is asked to end, then killed.

    A child killed by a signal gives 128 + the signal, as a shell does.
    """
    child = subprocess.Popen(
        argv,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # Ctrl-C comes to us alone and is passed on once: two of them would interrupt the writing of the checkpoint.
        start_new_session=True,
        preexec_fn=_in_child,  # noqa: PLW1509  two system calls, see die_with_parent
    )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        _end(child, stop_s)
        return EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    return code if code >= 0 else 128 - code


def _in_child() -> None:
    die_with_parent()
    # a shell starts background jobs with SIGINT ignored, and that is inherited: ours is how the trainer is asked to end
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(child: subprocess.Popen[bytes], stop_s: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    try:
        child.wait(stop_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()
        child.wait()
