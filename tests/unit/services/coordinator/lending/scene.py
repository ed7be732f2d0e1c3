"""One node of 10 cores and 100 GB that is looked at over time."""

from __future__ import annotations

from msgspec.structs import replace

from services.coordinator.lending.ledger import LoanLedger, LoanShown, LoanWrite
from services.coordinator.lending.pod_uses import KnownUse
from services.coordinator.usage.measured import MeasuredNode, UsagePart
from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.lending.rule import LendingRule
from tests.builders import make_node, make_pod

GB = 10**9
RULE = LendingRule()
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


def pod(name: str, cpu: str = "4", memory: str = "8G", *, qos: str = "LS", batch_cpu: int = 0) -> Pod:
    """On the node; ``qos`` as Koordinator's label has it."""
    builder = make_pod(name).on("n").set(labels={"koordinator.sh/qosClass": qos})
    requests = {"cpu": cpu, "memory": memory} if not batch_cpu else {CPU: str(batch_cpu)}
    builder.json["spec"]["containers"][0]["resources"]["requests"] = requests
    return builder.pod()


class LendingScene:
    """What is written is shown on the node at once, unless ``watches`` is off."""

    def __init__(self, rule: LendingRule = RULE, *, on: bool = True, reserved: str = "0") -> None:
        builder = make_node("n").allocatable(cpu="10", memory=str(100 * GB))
        builder.json["status"]["capacity"] = {"cpu": "10", "memory": str(100 * GB)}
        if reserved != "0":
            builder.json["status"]["allocatable"]["cpu"] = str(10 - int(reserved))
        self.node: Node = builder.node()
        self.ledger = LoanLedger(rule, on=on)
        self.now_s = 1000.0
        self.pods: list[Pod] = []
        self.uses: dict[str, tuple[int, int]] = {}
        self.uses_age_s = 0.0
        """How long ago pods were measured."""
        self.measured: MeasuredNode | None = None
        self.watches = True

    def uses_of_node(self, cpu: float | None, memory: float | None, *, age_s: float = 0.0) -> None:
        """What it is measured to use, ``age_s`` ago; None: nobody says."""
        at_s = self.now_s - age_s
        parts = [UsagePart(amount, at_s, "sensor") if amount is not None else None for amount in (cpu, memory)]
        self.measured = MeasuredNode(parts=[*parts, None, None])

    def use_of(self, key: str) -> KnownUse | None:
        at_s = self.now_s - self.uses_age_s
        return KnownUse(at_s, at_s, self.uses[key]) if key in self.uses else None

    def look(self) -> LoanWrite | None:
        """What is to be written now; it is carried out."""
        self.ledger.look(self.node, self.pods, self.measured, self.use_of, self.now_s)
        work = self.ledger.due(self.node, self.now_s)
        if work is not None:
            self.ledger.started("n", self.now_s)
            self.ledger.settled("n", self.now_s, ours=work.amounts is not None)
            if self.watches:
                self.show(work.amounts)
        return work

    def show(self, amounts: tuple[int, int] | None) -> None:
        """Have the node say that it lends so much."""
        others = {name: amount for name, amount in self.node.allocatable.items() if name not in (CPU, MEMORY)}
        lent = dict(zip((CPU, MEMORY), amounts, strict=True)) if amounts is not None else {}
        self.node = replace(self.node, allocatable={**others, **lent})

    def play(
        self, seconds: float, *, cpu: float = 2000, memory: float = 20 * GB, every_s: float = 10.0
    ) -> list[LoanWrite]:
        """Look so long at a node that uses so much; what was written meanwhile."""
        written = []
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += every_s
            self.uses_of_node(cpu, memory)
            work = self.look()
            written += [work] if work is not None else []
        return written

    @property
    def lent(self) -> tuple[int, int]:
        """What the node says."""
        return self.node.allocatable.get(CPU, 0), self.node.allocatable.get(MEMORY, 0)

    @property
    def shown(self) -> LoanShown:
        found = self.ledger.shown(self.node)
        assert found is not None
        return found
