"""``conclave train`` and ``conclave evaluate``."""
