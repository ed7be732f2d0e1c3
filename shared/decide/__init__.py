"""One frame for whatever decides: guard, registry, canary, stages, roll-out. Pure (ADR 0067)."""
