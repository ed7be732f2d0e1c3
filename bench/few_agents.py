"""A lone pod where many agents own a node each: whom the leader asks, what that costs it, and what it loses.

    python -m bench.few_agents [--nodes 1000,5000] [--policy kube-default,marl-dqn] [--scene unlike,like,deployments]
        [--asked 16,0] [--pods 300] [--seeds 1]

The cores of coordinator and agents with their messages as bytes, in virtual time. Nodes are used by others, each by
another amount (``bench.quality.scenes``); pods come one at a time, and from the hundredth on the oldest leaves as one
comes. ``gpus``: on nodes of three models that others use in part, pods that ask for shares, for one GPU or for two.
``messages``: offers and answers a pod; ``leader``: CPU of the coordinator's core and of the codec of both a pod
(not of HTTP: ``bench.parts.peer_call`` says what a call costs), its mean and the 99th percentile; *regret* as of
``bench.quality``: points of 100 below the best of all nodes. ``--asked``: the setting ``asked_agents``; 0: all are.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

from bench.quality.scenes import SCENES, objects, standing
from bench.quality.world import QualityWorld
from bench.saturation import load
from bench.saturation.world import ANSWER_S, settle_garbage
from bench.stand.contest import numbers
from bench.stand.figures import quantile, table
from services.coordinator.core import events as seen
from services.coordinator.core.state import CoreSettings
from shared.model.cluster_events import Listed
from shared.model.resources import GPU_MILLI
from shared.policy.frag.view import GPU_MODEL_LABEL
from shared.wire.codec import decode, encode
from shared.wire.messages import Decisions, Offer, ViewUpdate
from shared.wire.records import AgentRecord

STANDING = 100
"""Pods of ours at a time."""
GPUS = "gpus"
MODELS = (("A10", 4), ("T4", 2), ("V100", 8))
"""Of the nodes in turn, and how many each has."""
ASKED = ((4000, 1000), (2000, 500), (8000, 1000), (2000, 250), (8000, 2000), (4000, 0), (2000, 300))
"""Milli-cores, and thousandths of a GPU, of pods in turn."""
Json = dict[str, Any]
HEAD = ("scene", "messages", "offers p50", "offers p99", "leader ms", "p99", "regret", "p99", "worst")


class OneNodeAgents(QualityWorld):
    """An agent on each node."""

    def __init__(self, nodes: int, *, policy: str, seed: int, settings: CoreSettings) -> None:
        super().__init__(policy=policy, agents=nodes, seed=seed, settings=settings)
        self.asked = 0
        self.codec_s = 0.0

    def begin(self) -> None:
        """Agents and binder are there, everything is listed."""
        homes = zip(self._agents, self._nodes, strict=True)
        records = [AgentRecord(id=name, url=name, incarnation=name, node=home) for name, home in homes]
        for event in (
            seen.AgentsChanged(tuple(records)), seen.BinderChanged("http://binder", 3), seen.IntentsListed(()),
            seen.ControlSeen(), Listed("nodes"), Listed("pods"),
        ):  # fmt: skip
            self.post(event)

    def remove_pod(self, uid: str) -> None:
        """See ``CoreWorld``."""
        super().remove_pod(uid)
        self.judge.state.forget(uid)

    def _ask(self, agent: str, message: Offer | ViewUpdate) -> None:
        if not isinstance(message, Offer):
            super()._ask(agent, message)
            return
        began = time.thread_time()
        body = encode(message)
        self.codec_s += time.thread_time() - began
        core = self._agents[agent]
        core.now_s = self.now
        answer = encode(core.decide(decode(body, Offer)))
        began = time.thread_time()
        decisions = decode(answer, Decisions)
        self.codec_s += time.thread_time() - began
        self.asked += 1
        self.overhear(message)
        self.post(seen.DecisionsReceived(agent, message.message_id, decisions), ANSWER_S)


def with_gpus(number: int) -> Json:
    """A node of the scene ``gpus``."""
    body, (model, devices) = load.node(f"node-{number:05}", number), MODELS[number % len(MODELS)]
    body["metadata"]["labels"][GPU_MODEL_LABEL] = model
    for amounts in (body["status"]["capacity"], body["status"]["allocatable"]):
        amounts[GPU_MILLI] = str(1000 * devices)
    return body


def on_gpus(number: int) -> Json:
    """A pod of the scene ``gpus``, no two in a row alike: of four of the kinds, squares being 0, 1, 2 or 4 modulo 7."""
    cpu_millis, gpu_milli = ASKED[number * number % 7]
    return asking(f"pod-{number:06}", cpu_millis + number % 13, gpu_milli)


def asking(name: str, cpu_millis: int, gpu_milli: int, **more: Any) -> Json:
    """A pod that asks for so much of a GPU."""
    body = load.pod(name, cpu_millis if "on" not in more else 100, 1024, **more)
    if gpu_milli:
        resources = body["spec"]["containers"][0]["resources"]
        resources["requests"][GPU_MILLI] = str(gpu_milli)
        resources["limits"] = {GPU_MILLI: str(gpu_milli)}
    return body


def row(scene: str, nodes: int, seed: int, options: argparse.Namespace, policy: str, asked: int) -> Sequence[str]:
    """A line."""
    world = OneNodeAgents(nodes, policy=policy, seed=seed, settings=CoreSettings(asked_agents=asked))
    for number in range(nodes):
        world.add_node(with_gpus(number) if scene == GPUS else load.node(f"node-{number:05}", number))
    if scene == "deployments":
        objects(world)
    standing(world, nodes)
    if scene == GPUS:
        for number in range(0, nodes, 2):
            world.add_pod(asking(f"gpus-{number:05}", *ASKED[number % 7], on=f"node-{number:05}", scheduler="other"))
    world.begin()
    world.rest(60)
    settle_garbage()
    ours, offers, cpu_ms = deque[str](), list[int](), list[float]()
    for number in range(options.pods):
        if len(ours) == STANDING:
            world.remove_pod(ours.popleft())
        world.phase = f"pod {number}"
        before, codec_s = world.asked, world.codec_s
        ours.append(world.add_pod(on_gpus(number) if scene == GPUS else SCENES[scene](number)))
        assert world.rest(60)
        offers.append(world.asked - before)
        cpu_ms.append(sum(world.turns[world.phase].cpu_ms) + 1000 * (world.codec_s - codec_s))
    assert len(world.bound) == options.pods
    assert not world.judge.misplaced
    regrets = world.judge.regrets
    figures = (
        f"{2 * fmean(offers):.1f}", f"{quantile(offers, 50):.0f}", f"{quantile(offers, 99):.0f}",
        f"{fmean(cpu_ms):.2f}", f"{quantile(cpu_ms, 99):.2f}",
        f"{fmean(regrets):.3f}", f"{quantile(regrets, 99):.2f}", f"{max(regrets):.2f}",
    )  # fmt: skip
    return f"{policy}, {scene}, {nodes} agents, asked {asked}, seed {seed}", *figures


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.few_agents", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=numbers, default=[1000])
    parser.add_argument("--policy", default="kube-default,marl-dqn", help="several by comma")
    parser.add_argument(
        "--scene", default="unlike,like,deployments", help=f"of {', '.join((*SCENES, GPUS))}; several by comma"
    )
    parser.add_argument("--asked", type=partial(numbers, least=0), default=[16, 0])
    parser.add_argument("--pods", type=int, default=300)
    parser.add_argument("--seeds", type=numbers, default=[1])
    options = parser.parse_args()
    lines = []
    for nodes in options.nodes:
        for policy in options.policy.split(","):
            for scene in options.scene.split(","):
                for asked in options.asked:
                    for seed in options.seeds:
                        lines.append(row(scene, nodes, seed, options, policy, asked))
                        print(*lines[-1], sep="  ", flush=True)
    print(*table(HEAD, lines), sep="\n")


if __name__ == "__main__":
    main()
