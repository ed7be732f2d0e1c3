"""A sensor: measures its node and probes others, decides nothing, and is small (docs/sensors.md)."""
