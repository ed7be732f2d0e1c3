"""What telling a unit's way costs: off, as debug lines it is not asked, as spans. ``python -m bench.parts.hops``."""

from __future__ import annotations

import time

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.runtime.observe.hops import PARENTS, Hops, Tracer

UNITS = 20_000


def main() -> None:
    """Microseconds of CPU per unit, all six hops of it."""
    off, hops = Hops(), len(PARENTS)
    started = time.process_time()
    for _ in range(UNITS * hops):
        if off.on:
            raise AssertionError("nobody listens")
    print(f"off: {(time.process_time() - started) / UNITS * 1e6:.2f} us of CPU per unit")
    for every in (1, 10):
        exporter = InMemorySpanExporter()
        on = Hops(Tracer("bench", "0", exporter), every=every)
        started = time.process_time()
        for unit in range(UNITS):
            for name in PARENTS:
                if on.on:
                    on.span(name, f"7-{unit:x}", 0.001, pod_uid="uid", node="node")
        print(f"one unit in {every} traced: {(time.process_time() - started) / UNITS * 1e6:.1f} us of CPU per unit")
        on.close()


if __name__ == "__main__":
    main()
