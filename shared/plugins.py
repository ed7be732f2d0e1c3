"""Filters, scores, policies and rewards that a user brings: the interface ``v1``, and what fits it to our own. Pure.

A plug-in is a class without arguments, found by an entry point (``conclave.filters``, ``conclave.scores``,
``conclave.policies``, ``conclave.rewards``) and used where the setting ``plugins`` names it. It is a function of what
it is given: same nodes, same pod, same answer. docs/plugins.md is the guide, docs/examples/plugin an example.

What a plug-in does wrong stays with it and is told under its name (ADR 0018): a filter that fails refuses the nodes it
was asked about, since nobody knows whether they would do; a score that fails counts nothing from then on; a policy that
fails is replaced by kube-default for that decision, as ours are (``policy.guard``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigError
from shared.model.constraints import PodClass, Taint
from shared.policy.observation import Observation, Policy, Rng, Verdicts
from shared.scheduling.framework import Code, Score
from shared.scheduling.matching.domains import codes_or_absent
from shared.scheduling.scores import MAX_SCORE
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows

API_VERSION = "v1"

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
MOST_MESSAGE = 200
MOST_WEIGHT = 100

Report = Callable[[str, str], None]
"""(plug-in, what is wrong with it): told once per text by whoever loads plug-ins."""


class Nodes:
    """Some nodes as they stand now, each array in the order of ``names``; every array is the reader's own."""

    __slots__ = ("_rows", "_static", "_table")

    def __init__(self, table: NodeTable, rows: IntArray, *, static: bool = False) -> None:
        self._table = table
        self._rows = rows
        self._static = static

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def names(self) -> list[str]:
        """The nodes' names."""
        return [self._table.names[row] for row in self._rows.tolist()]

    def label(self, key: str) -> list[str]:
        """The label's value; "" where a node has none."""
        return ["" if node is None else node.labels.get(key, "") for node in self._nodes()]

    def label_in(self, key: str, values: Collection[str]) -> BoolArray:
        """bool ``[nodes]``: whether the label is one of ``values``; quicker than ``label`` where nodes are many."""
        known = self._table.label_values.get(key, {})
        codes = [known[value] for value in values if value in known]
        return np.isin(codes_or_absent(self._table, key)[self._rows], codes)

    @property
    def taints(self) -> list[tuple[Taint, ...]]:
        """The taints of each."""
        return [() if node is None else node.taints for node in self._nodes()]

    @property
    def cordoned(self) -> BoolArray:
        """bool ``[nodes]``: cordoned, or drained from scheduling."""
        return self._table.unschedulable[self._rows].copy()

    def allocatable(self, resource: str) -> IntArray:
        """int64 ``[nodes]``: milli-cores of ``cpu``, whole units (bytes) of the rest; 0 where a node has none."""
        return self._amounts(self._table.allocatable, resource)

    def requested(self, resource: str) -> IntArray:
        """int64 ``[nodes]``: what the pods on the node request, those on their way included; ``pods``: their number."""
        return self._amounts(self._table.requested, resource)

    def free(self, resource: str) -> IntArray:
        """int64 ``[nodes]``: allocatable less requested; below 0 on a node that is overfull."""
        return self.allocatable(resource) - self.requested(resource)

    def _nodes(self) -> list[Any]:
        return [self._table.nodes[row] for row in self._rows.tolist()]

    def _amounts(self, amounts: IntArray, resource: str) -> IntArray:
        if self._static:
            raise TypeError("a static filter is not asked again when amounts change; set static = False to read them")
        column = self._table.column_of.get(resource)
        return np.zeros(len(self._rows), np.int64) if column is None else amounts[column, self._rows]


class FilterPlugin(Protocol):
    """Which nodes may take a pod. ``message``: the reason, counted as "3 <message>" in a pod's condition."""

    api_version: ClassVar[str]
    message: ClassVar[str]
    static: ClassVar[bool]
    """True: it reads names, labels, taints and cordons alone, and of the pod neither amounts nor ports (they are empty
    then); it is asked again only when these change. False: it may read all."""

    def takes(self, nodes: Nodes, pod: PodClass) -> BoolArray:
        """bool ``[nodes]``: True where the pod may go."""
        ...


class ScorePlugin(Protocol):
    """How good a node is for a pod, added to kube-default's total. ``weight``: 1..100, multiplies the score."""

    api_version: ClassVar[str]
    weight: ClassVar[int]

    def score(self, nodes: Nodes, pod: PodClass) -> NDArray[Any]:
        """Numbers ``[nodes]``, 0..100, each by its node alone: an agent sees only its own nodes, so what is normalised
        over those at hand would not compare. Fractions are cut off; what is outside is put at the bound."""
        ...


class PolicyPlugin(Protocol):
    """How nodes are ranked, instead of ours. ``version``: at least 1, recorded with each decision. One that is learned
    brings its weights in its package. An attribute ``bounds``, (least, greatest) rank, lets it be a member of a mixture
    (``policy.hybrid``) that names no scale for it. ``row_local = True`` says that a node's rank rests on that node
    alone, or else ``agents_agree = True`` that it is the same whatever other nodes are asked about beside it. One that
    ranks otherwise is not registered: agents see some of the nodes each; one that says neither is told of."""

    api_version: ClassVar[str]
    version: ClassVar[int]

    def rank(self, nodes: Nodes, pod: PodClass, draw: Callable[[], float]) -> NDArray[Any]:
        """Finite numbers ``[nodes]``, the greatest is best; ``nodes`` passed every filter. ``draw``: uniform [0, 1)."""
        ...


class RewardPlugin(Protocol):
    """What a placement was worth, in training and evaluation of ``ee``, ``lb`` and ``el``, instead of the shipped."""

    api_version: ClassVar[str]

    def reward(self, features: Mapping[str, float]) -> float:
        """A finite number, the greatest is best; ``features``: docs/policies/README.md has them, signals too."""
        ...


class BroughtFilter:
    """A user's filter as ours are asked (``framework.Filter``)."""

    def __init__(self, name: str, plugin: FilterPlugin, report: Report) -> None:
        self.name = name
        self.static = bool(getattr(plugin, "static", False))
        self._plugin = plugin
        self._report = report
        self._code = Code.UNRESOLVABLE if self.static else Code.UNSCHEDULABLE
        self._failure = f"node(s) not judged, filter {name} failed"

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Always: it says itself whom it means."""
        return True

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where the filter takes the class; nowhere where it fails."""
        asked = np.arange(table.rows)[rows]
        passing: BoolArray = table.present[asked].copy()
        passing[passing] = self._ask(table, pod_class, asked[passing])[0]
        return passing

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:
        """The filter's message, or that it failed. Evicting pods may help where it reads what is accounted."""
        return self._code, (self._ask(table, pod_class, np.array([row]))[1],)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """The same, once per row."""
        return {self._ask(table, pod_class, rows)[1]: len(rows)} if len(rows) else {}

    def _ask(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> tuple[BoolArray, str]:
        """(which rows pass, the reason of the others)."""
        try:
            passing = self._plugin.takes(Nodes(table, rows, static=self.static), pod_class)
            fault = _misshapen(passing, len(rows), "b")
        except Exception as error:  # noqa: BLE001  whatever a user's code raises, the pod is not to be placed by it
            fault = f"{type(error).__name__}: {error}"
        if fault:
            self._report(self.name, f"filter {self.name} failed and refuses the nodes it was asked about: {fault}")
            return np.zeros(len(rows), np.bool_), self._failure
        return passing, self._plugin.message


class BroughtScore:
    """A user's score as ours are asked (``framework.Score``)."""

    def __init__(self, name: str, plugin: ScorePlugin, report: Report) -> None:
        self.name = name
        self.weight = plugin.weight
        self._plugin = plugin
        self._report = report
        self._off = False

    def raw(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> IntArray:
        """``[rows]`` 0..100; 0 for all once it has failed: totals with and without it would not compare."""
        asked = np.arange(table.rows)[rows]
        nothing = np.zeros(len(asked), np.int64)
        if self._off:
            return nothing
        try:
            scores = self._plugin.score(Nodes(table, asked), pod_class)
            fault = _misshapen(scores, len(asked), "iuf")
        except Exception as error:  # noqa: BLE001  as in BroughtFilter
            fault = f"{type(error).__name__}: {error}"
        if fault:
            self._off = True
            self._report(self.name, f"score {self.name} failed and counts nothing until a restart: {fault}")
            return nothing
        return np.asarray(np.clip(scores, 0, MAX_SCORE), np.int64)


class BroughtPolicy:
    """A user's policy as ours are asked; the guard answers for what it does wrong."""

    def __init__(self, name: str, plugin: PolicyPlugin, version: int) -> None:
        self.name = name
        self.version = version
        self.row_local = bool(getattr(plugin, "row_local", False))
        self.agents_agree = bool(getattr(plugin, "agents_agree", False))
        self.bounds = _bounds(name, plugin)
        self._plugin = plugin

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:
        """Its ranks as scores; it accepts every node."""
        nodes = Nodes(observation.table, observation.rows)
        ranks = self._plugin.rank(nodes, observation.pod_class, rng.random)
        return Verdicts(np.asarray(ranks, np.float64))


def filter_of(name: str, made: object, report: Report) -> BroughtFilter:
    """The filter, checked. Raises ``ConfigError``."""
    plugin = _made(name, made, "takes")
    message = getattr(plugin, "message", None)
    if not isinstance(message, str) or not 0 < len(message) <= MOST_MESSAGE or not message.isprintable():
        raise ConfigError(f"plugin {name}: message must be one line of 1 to {MOST_MESSAGE} characters")
    return BroughtFilter(name, plugin, report)


def score_of(name: str, made: object, report: Report) -> Score:
    """The score, checked. Raises ``ConfigError``."""
    plugin = _made(name, made, "score")
    weight = getattr(plugin, "weight", None)
    if not isinstance(weight, int) or not 1 <= weight <= MOST_WEIGHT:
        raise ConfigError(f"plugin {name}: weight must be a whole number of 1 to {MOST_WEIGHT}")
    return BroughtScore(name, plugin, report)


def reward_of(name: str, made: Any) -> Callable[[Mapping[str, float]], float]:
    """The method of the reward, checked. Raises ``ConfigError``."""
    judge: Callable[[Mapping[str, float]], float] = _made(name, made, "reward").reward
    return judge


def policy_maker(name: str, made: Any) -> Callable[[], Policy]:
    """What makes the policy, anew for each agent's table. Raises ``ConfigError``."""
    _check(name, made, "rank")
    version = getattr(made, "version", None)
    if not isinstance(version, int) or version < 1:
        raise ConfigError(f"plugin {name}: version must be a whole number from 1")
    return lambda: BroughtPolicy(name, _called(name, made), version)


def _bounds(name: str, plugin: PolicyPlugin) -> tuple[float, float] | None:
    """The least and the greatest rank that the policy says it gives, None: it says nothing. Raises ``ConfigError``."""
    bounds = getattr(plugin, "bounds", None)
    if bounds is None:
        return None
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low = high = 0.0
    if not -np.inf < low < high < np.inf:
        raise ConfigError(f"plugin {name}: bounds must be its least and its greatest rank, two finite numbers")
    return low, high


def _made(name: str, made: Any, method: str) -> Any:
    _check(name, made, method)
    return _called(name, made)


def _called(name: str, made: Callable[[], Any]) -> Any:
    try:
        return made()
    except Exception as error:
        raise ConfigError(f"plugin {name}: cannot be made ({type(error).__name__}: {error})") from error


def _check(name: str, made: Any, method: str) -> None:
    version = getattr(made, "api_version", None)
    if version != API_VERSION:
        raise ConfigError(
            f"plugin {name}: is written for interface {version!r}, this release offers {API_VERSION!r}; install a "
            "release of it that fits"
        )
    if not callable(made) or not callable(getattr(made, method, None)):
        raise ConfigError(f"plugin {name}: its entry point must name a class with a method {method!r}")


def _misshapen(answer: object, count: int, kinds: str) -> str:
    """What is wrong with an answer for so many nodes; empty: nothing."""
    if not isinstance(answer, np.ndarray) or answer.dtype.kind not in kinds or answer.shape != (count,):
        found = f"{answer.dtype}" if isinstance(answer, np.ndarray) else type(answer).__name__
        return f"it answered {found}, not an array [nodes] of {'bool' if kinds == 'b' else 'numbers'}"
    return "" if kinds == "b" or np.isfinite(answer).all() else "it answered NaN or an infinite number"
