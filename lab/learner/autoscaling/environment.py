"""The twin's service graphs as a PettingZoo environment: one agent per service, and an attacker where one is wanted.

A view of ``lab.worlds.services`` for training tools that are not ours; our trainer plays episodes directly. A step is
a decision, ten seconds. Each service's agent sees ``observation`` float32 [features] (``networks.features.FEATURES``,
within +-3) and ``action_mask`` int8 [5], and takes one of ``STEPS``: -2 to +2 replicas. What the mask excludes is no
step, and counted in ``infeasible``. The attacker (``lab.worlds.services.attacker``) sees the mean of the services'
features and takes one of 15 actions; it earns what the services lose: the game is zero-sum. Everybody's reward is the
graph's operational resilience over the step, 0 to 1 (``metrics.resilience``), the attacker's the same with the sign
turned. An episode is truncated at its length, it never terminates.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from lab.autoscaling.episode import Setup, World, attackable
from lab.autoscaling.metrics import resilience
from lab.worlds.services.attacker import ACTIONS, Attacker
from lab.worlds.services.topology import default_topology
from shared.autoscaling.networks.features import CLIP, FEATURES, HOLD, STEPS
from shared.autoscaling.networks.karma import Eyes
from shared.autoscaling.roles.organisation import NOBODY, Organisation
from shared.errors import ConfigError

ATTACKER = "attacker"
Seen = dict[str, NDArray[Any]]


class ServiceGraphEnv(ParallelEnv[str, Seen, int]):  # type: ignore[misc]
    """See the module. ``organisation``: whose roles mask steps; by default nobody's, bounds alone do."""

    metadata: ClassVar[dict[str, Any]] = {"name": "conclave_services_v1", "render_modes": [], "is_parallelizable": True}

    def __init__(
        self, setup: Setup | None = None, *, organisation: Organisation = NOBODY, attacker: bool = False
    ) -> None:
        self.setup = setup or Setup(default_topology())
        self.render_mode = None
        services = list(self.setup.topology.order)
        if attacker and ATTACKER in services:
            raise ConfigError(f"topology: a service is called {ATTACKER!r}; rename it, or play without the attacker")
        self.possible_agents = [*services, *([ATTACKER] if attacker else [])]
        self.agents: list[str] = []
        self.infeasible = 0
        self._services = services
        self._eyes = Eyes(organisation)
        self._seeds = np.random.default_rng()
        self._world: World | None = None
        self._attacker: Attacker | None = None
        self._masks: NDArray[np.bool_] = np.zeros((0, len(STEPS)), np.bool_)

    @functools.cache  # noqa: B019  # PettingZoo: the same space object for an agent, always
    def observation_space(self, agent: str) -> spaces.Dict:
        actions = ACTIONS if agent == ATTACKER else len(STEPS)
        return spaces.Dict(
            {
                "observation": spaces.Box(-CLIP, CLIP, (len(FEATURES),), np.float32),
                "action_mask": spaces.Box(0, 1, (actions,), np.int8),
            }
        )

    @functools.cache  # noqa: B019
    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(ACTIONS if agent == ATTACKER else len(STEPS))

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[dict[str, Seen], dict[str, dict[str, Any]]]:
        """Begin the episode of ``seed``; None: of one drawn from the last seed given."""
        if seed is not None:
            self._seeds = np.random.default_rng(seed)
        self._world = self.setup.world(int(self._seeds.integers(2**31)))
        self._attacker = Attacker(attackable(self._world)) if ATTACKER in self.possible_agents else None
        self._eyes.reset()
        self.agents = list(self.possible_agents)
        self.infeasible = 0
        return self._observations(self._world), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Seen], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Everybody acts, and the world goes on to the next decision."""
        world = self._world
        if world is None or not self.agents:
            raise ConfigError("step: no episode is under way; call reset first")
        chosen = np.array([int(actions[name]) for name in self._services])
        allowed = self._masks[np.arange(len(chosen)), chosen]
        self.infeasible += int((~allowed).sum())
        world.apply(self._eyes.step(np.where(allowed, chosen, HOLD)))
        if self._attacker is not None:
            self._attacker.act(int(actions[ATTACKER]))
        first = world.now_s
        world.run(self.setup.decide_s)
        earned = float(resilience(world.seconds, world.topology, first, world.now_s).mean())
        agents, over = self.agents, world.over
        observations = self._observations(world)
        if over:
            self.agents = []
        return (
            observations,
            {agent: -earned if agent == ATTACKER else earned for agent in agents},
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, over),
            {agent: {} for agent in agents},
        )

    def render(self) -> None:
        """There is nothing to see; the suite's ``--steps`` has every decision."""

    def close(self) -> None:
        """Nothing is held."""

    def _observations(self, world: World) -> dict[str, Seen]:
        rows, self._masks = self._eyes.look(world.observe())
        found: dict[str, Seen] = {
            name: {"observation": rows[at], "action_mask": self._masks[at].astype(np.int8)}
            for at, name in enumerate(self._eyes.signals)
        }
        if self._attacker is not None:
            left = np.int8(self._attacker.left > 0)
            mask = np.full(ACTIONS, left, np.int8)
            mask[: ACTIONS // 5] = 1
            found[ATTACKER] = {"observation": rows.mean(axis=0, dtype=np.float32), "action_mask": mask}
        return found
