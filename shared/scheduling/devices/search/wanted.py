"""What one request may be given on a node, whatever else is chosen: the half of a search that no choice changes.

A request or alternative is looked up once per search: its class, its selectors, and of ``All`` which devices that is.
What its selectors say of a device, how much of it would be taken, and the values of its attributes are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.model.devices import DeviceAsk, DeviceClass
from shared.scheduling.devices.capacity import Amounts, consumption, suffices
from shared.scheduling.devices.cel.expressions import DeviceSelectorError
from shared.scheduling.devices.cel.selectors import Selectors
from shared.scheduling.devices.fullness import left_of_device, left_of_sets
from shared.scheduling.devices.pools import DevicePool, PoolDevice, reaches
from shared.scheduling.devices.search.constraints import Values, values_of
from shared.scheduling.devices.search.outcomes import AllocationFailure, SearchEnded
from shared.scheduling.devices.usage import DeviceUsage
from shared.scheduling.framework import Code
from shared.scheduling.state.releases import Release

Place = tuple[int, int]
"""A device of the node: (pool, device in it)."""


@dataclass(slots=True)
class WantedDevices:
    """One request or alternative, looked up. ``everything``: the devices that ``All`` means."""

    ask: DeviceAsk
    request: str
    alternative: str
    selectors: tuple[tuple[str, str], ...]
    """(whose it is, with its number; expression)."""
    count: int = 0
    everything: list[Place] | None = None
    _verdicts: dict[Place, bool] = field(default_factory=dict)
    _amounts: dict[Place, Amounts | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As results and constraints call it."""
        return f"{self.request}/{self.alternative}" if self.alternative else self.request


@dataclass(slots=True)
class NodeOffer:
    """A node: its ``pools`` in order, and its ``name`` and ``labels`` for devices that say which nodes reach them."""

    pools: Sequence[DevicePool]
    usage: DeviceUsage
    selectors: Selectors
    classes: Mapping[str, DeviceClass]
    release: Release
    name: str
    labels: Mapping[str, str]
    fullest_first: bool = False
    """Of devices that are partly in use, those with the least left are tried first, whole ones last."""
    _places: list[Place] | None = None
    _values: dict[tuple[str, Place], Values | None] = field(default_factory=dict)

    def places(self) -> list[Place]:
        """All devices, in the order in which they are tried."""
        if self._places is None:
            self._places = [(p, d) for p, pool in enumerate(self.pools) for d in range(len(pool.devices))]
            if self.fullest_first:
                sets = [left_of_sets(pool, self.usage) for pool in self.pools]
                self._places.sort(
                    key=lambda at: (self.pools[at[0]].waits, left_of_device(self._at(at), self.usage, sets[at[0]]))
                )
        return self._places

    def _at(self, place: Place) -> PoolDevice:
        return self.pools[place[0]].devices[place[1]]

    def look_up(self, c: int, request: str, ask: DeviceAsk, *, alternative: bool) -> WantedDevices:
        """The request of claim ``c``. Raises ``SearchEnded`` where its class is gone, or ``All`` cannot be told."""
        class_ = self.classes.get(ask.class_name)
        if class_ is None:
            text = f"claim {{claim}}, request {ask.name}: could not retrieve device class {ask.class_name}"
            raise SearchEnded(AllocationFailure(Code.ERROR, text, c))
        selectors = [(f"class {class_.name}: selector #{i}", one) for i, one in enumerate(class_.selectors)]
        selectors += [(f"claim {{claim}}: selector #{i}", one) for i, one in enumerate(ask.selectors)]
        found = WantedDevices(ask, request, ask.name if alternative else "", tuple(selectors), ask.count)
        if ask.mode == "All":
            found.everything = self._everything(c, found)
            found.count = len(found.everything)
        return found

    def _everything(self, c: int, wanted: WantedDevices) -> list[Place]:
        """All devices that match and may be asked for as much as is wanted of them."""
        found = []
        code = Code.ERROR if self.release is Release.V1_36 else Code.UNRESOLVABLE
        for p, pool in enumerate(self.pools):
            if not pool.usable:
                state = "being updated" if pool.incomplete else "invalid"
                text = f"claim {{claim}}, request {wanted.ask.name}: asks for all devices, but resource pool {{pool}}"
                raise SearchEnded(AllocationFailure(code, f"{text} is currently {state}", c, p))
            places = ((p, d) for d in range(len(pool.devices)))
            found += [place for place in places if self.selectable(c, wanted, place) and self.enough(wanted, place, {})]
        return found

    def selectable(self, c: int, wanted: WantedDevices, place: Place) -> bool:
        """Whether all selectors match the device and it reaches the node. Raises ``SearchEnded`` where one fails on
        it."""
        found = wanted._verdicts.get(place)  # noqa: SLF001 - what is remembered belongs to both
        if found is None:
            p, d = place
            one = self.pools[p].devices[d]
            found = True
            for whose, expression in wanted.selectors:
                try:
                    found = self.selectors.matches(expression, one.facts)
                except DeviceSelectorError as error:
                    raise SearchEnded(AllocationFailure(Code.ERROR, f"{whose}: {error}", c)) from None
                if not found:
                    break
            if found and one.slice.per_device:
                found = reaches(one.device.reach, self.name, self.labels)
            wanted._verdicts[place] = found  # noqa: SLF001
        return found

    def amounts(self, wanted: WantedDevices, place: Place) -> Amounts | None:
        """How much of each capacity would be taken; None: it may not be asked for that."""
        amounts = wanted._amounts  # noqa: SLF001
        if place not in amounts:
            one = self.pools[place[0]].devices[place[1]]
            amounts[place] = consumption(one.id[0], one.device, wanted.ask.capacity, self.release)
        return amounts[place]

    def enough(self, wanted: WantedDevices, place: Place, taken: Mapping[str, int]) -> bool:
        """Whether that is left, beside all users and what this search has ``taken`` of the device."""
        one = self.pools[place[0]].devices[place[1]]
        if not one.device.capacity and not wanted.ask.capacity:
            return True
        amounts = self.amounts(wanted, place)
        return amounts is not None and suffices(one.device, amounts, self.usage.consumed.get(one.id, {}), taken)

    def values(self, attribute: str, place: Place) -> Values | None:
        """The values of an attribute; None: the device lacks it."""
        key = (attribute, place)
        if key not in self._values:
            one = self.pools[place[0]].devices[place[1]]
            self._values[key] = values_of(attribute, one.id[0], one.device)
        return self._values[key]
