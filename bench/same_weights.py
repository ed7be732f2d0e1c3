"""Whether two checkouts learn the same: a few updates by each trainer, the same seeds, sha256 of the weights compared.

    .venv/bin/python -m bench.same_weights OTHER_CHECKOUT [--only karma,lb]

Each checkout is a process of its own, with the checkout before all else on its path. Episodes and networks are small,
so that each trainer gets through its whole loop (imitation, roll-out, updates, validation) in seconds. Exits with 1
where a sum differs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).parents[1]
SEED = 1001
SMALL_PPO = {"horizon": 150, "epochs": 2, "batch_size": 48}
"""Of uneven parts: the last of a roll-out is a fraction of a batch."""


def of(module: str, name: str) -> Any:
    """What that module of the lab's learner has under this name."""
    return getattr(importlib.import_module(f"lab.learner.{module}"), name)


def deep_sets(policy: str, algorithm: str) -> Any:
    """``lb``, ``ee`` or ``el``, by an algorithm."""
    settings = of("deepsets.settings", "learning_by")(of("deepsets.settings", "settings_for")(policy, SEED), algorithm)
    small = {"decisions": 400, "learning_starts": 100, "validate_every": 1000, "hidden": (16, 16)}
    settings = replace(settings, **small)
    if settings.ppo is None:
        return of("deepsets.training", "DeepSetsRun")(settings)
    return of("deepsets.ppo", "PpoRun")(replace(settings, ppo=replace(settings.ppo, **SMALL_PPO)))


def agents(policy: str, algorithm: str) -> Any:
    """``marl-dqn`` and its variants, by an algorithm."""
    settings = replace(of("marl.settings", "settings_for")(policy, SEED, 2), algorithm=algorithm)
    settings = replace(settings, episodes_per_round=2, updates_per_round=8, validate_every=50, hidden=(16,))
    return (of("marl.ippo", "IppoRun") if algorithm == "ppo" else of("marl.training", "MarlRun"))(settings)


def karma(**changes: Any) -> Any:
    """``karma``, an agent each or one for all."""
    kind = of("autoscaling.training", "KarmaRun")
    settings = kind.__init__.__globals__[kind.__init__.__annotations__["settings"]]
    small = {
        "rounds": 2,
        "episodes_per_round": 2,
        "taught_episodes": 2,
        "taught_epochs": 2,
        "epochs": 2,
        "seconds": 200,
    }
    return kind(settings(seed=SEED, hidden=(16,), batch_size=100, validate_every=1, **small, **changes))


def aware() -> Any:
    """``aware``."""
    module = "autoscaling.aware_run"
    small = {
        "rounds": 2,
        "episodes_per_round": 3,
        "taught_episodes": 3,
        "taught_epochs": 2,
        "epochs": 2,
        "seconds": 200,
    }
    settings = of(module, "AwareRunSettings")(SEED, batch_episodes=2, hidden=8, validate_every=1, **small)
    return of(module, "AwareRun")(settings)


def scaler_dqn() -> Any:
    """``dqn``."""
    module = "autoscaling.dqn_run"
    small = {
        "rounds": 2,
        "episodes_per_round": 12,
        "hidden": (16,),
        "validate_every": 1,
        "capacity": 500,
        "seconds": 200,
    }
    settings = of(module, "ScalerDqnSettings")("dqn", SEED, **small)
    return of(module, "ScalerDqnRun")(replace(settings, learner=replace(settings.learner, batch_size=30)))


def dl2() -> Any:
    """``jobs-dl2``."""
    module = "jobs.dl2_training"
    settings = of(module, "Dl2Settings")(
        SEED, rounds=2, jobs=8, hidden=(8,), taught_episodes=2, corrected=1, taught_updates=4, episodes_per_round=2,
        updates=4, batch_size=50, validate_every=1,
    )  # fmt: skip
    return of(module, "Dl2Run")(settings, of("jobs.teachers", "teacher_of")("optimus"))


def sets() -> Any:
    """``jobs-sets``."""
    module = "jobs.sets_training"
    playgrounds = importlib.import_module("lab.learner.jobs.playgrounds")
    settings = of(module, "SetsSettings")(SEED, rounds=2, hidden=(4,), taught_updates=5, pairs=2, validate_every=1)
    order = playgrounds.TwinOrder
    mock.patch.object(playgrounds, "TwinOrder", lambda **given: order(**{**given, "jobs": 6})).start()
    return of(module, "SetsRun")(settings, [playgrounds.Playground("Twin A", 2, 1, (100,))])


STARTS: dict[str, Callable[[], Any]] = {
    "lb by double DQN": partial(deep_sets, "lb", ""),
    "lb by quantiles": partial(deep_sets, "lb", "distributional"),
    "ee by PPO": partial(deep_sets, "ee", ""),
    "el by PPO": partial(deep_sets, "el", ""),
    "marl-dqn": partial(agents, "marl-dqn", ""),
    "marl-dqn by quantiles": partial(agents, "marl-dqn", "distributional"),
    "marl-dqn by PPO": partial(agents, "marl-dqn", "ppo"),
    "marl-dqn-published": partial(agents, "marl-dqn-published", ""),
    "marl-dqn-per-node": partial(agents, "marl-dqn-per-node", ""),
    "single-dqn": partial(agents, "single-dqn", ""),
    "karma": karma,
    "karma with one agent": partial(karma, agents="single"),
    "karma from scratch": partial(karma, start="scratch", binding="soft"),
    "aware": aware,
    "dqn": scaler_dqn,
    "jobs-dl2": dl2,
    "jobs-sets": sets,
}


def summed(state: Any, into: Any) -> None:
    """Every array and number of a run's state, in order."""
    import numpy as np
    import torch

    if isinstance(state, torch.Tensor):
        state = state.detach().numpy()
    if isinstance(state, np.ndarray):
        into.update(f"{state.dtype}{state.shape}".encode() + np.ascontiguousarray(state).tobytes())
    elif isinstance(state, dict):
        for name in sorted(state, key=str):
            into.update(str(name).encode())
            summed(state[name], into)
    elif isinstance(state, list | tuple):
        for one in state:
            summed(one, into)
    else:
        into.update(repr(state).encode())


def digests(names: list[str]) -> Iterator[str]:
    """A line per trainer: the sum of all that its run holds at the end, weights, optimiser and generator alike."""
    import torch

    torch.set_num_threads(1)
    episodes = importlib.import_module("lab.learner.autoscaling.episodes")
    jobs = importlib.import_module("lab.learner.jobs.dl2_training")
    long = importlib.import_module("lab.jobs.twin_a")
    placing = importlib.import_module("lab.learner.deepsets.training")
    marl = importlib.import_module("lab.learner.marl.training")
    few = [
        mock.patch.object(episodes, "VALIDATION_SEEDS", (100,)), mock.patch.object(jobs, "VALIDATION_SEEDS", (100,)),
        mock.patch.object(long, "LONGEST_RUN_S", 6 * long.SLOT_S), mock.patch.object(marl, "VALIDATION_SEEDS", (500,)),
        mock.patch.object(placing, "VALIDATION_SEEDS", (500,)),
    ]  # fmt: skip
    for one in few:
        one.start()
    for name in names:
        run = STARTS[name]()
        for _ in run.run():
            pass
        found = hashlib.sha256()
        summed(run.get_state(), found)
        yield f"{name}\t{found.hexdigest()}"


def found_in(checkout: Path, names: list[str]) -> dict[str, str]:
    """The sums there; it is run with this interpreter."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, __file__, "--digests", ",".join(names)]
    done = subprocess.run(command, cwd=checkout, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr[-2000:]}")
    return dict(line.split("\t") for line in done.stdout.splitlines())


def main() -> None:
    """Compare, or (``--digests``) be one of the two."""
    parser = argparse.ArgumentParser(description="Do two checkouts learn the same?")
    parser.add_argument("other", type=Path, nargs="?", help="a checkout, of another version")
    parser.add_argument("--only", default="", help=f"comma-separated parts of {', '.join(STARTS)}")
    parser.add_argument("--digests", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.digests:
        for line in digests(given.digests.split(",")):
            print(line, flush=True)
        return
    if given.other is None:
        parser.error("name the other checkout")
    names = [name for name in STARTS if not given.only or any(part in name for part in given.only.split(","))]
    ours, others = found_in(HERE, names), found_in(given.other.resolve(), names)
    for name in names:
        print(
            f"{name}: {'the same' if ours[name] == others[name] else 'DIFFERS'} {ours[name][:16]} {others[name][:16]}"
        )
    sys.exit(ours != others)


if __name__ == "__main__":
    main()
