"""``conclave twin``: serve, capture, replay."""
