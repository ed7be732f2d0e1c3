"""``conclave autoscale analyse`` and ``design``."""
