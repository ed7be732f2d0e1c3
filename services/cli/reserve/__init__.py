"""``conclave reserve``: room that is kept for pods to come."""
