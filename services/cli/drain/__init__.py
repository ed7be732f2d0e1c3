"""``conclave drain``: a node gets no new pods, and with ``--evict`` those that are there leave it."""
