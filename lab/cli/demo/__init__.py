"""``conclave demo``: the mesh against the twin with a workload, kills on schedule, and a report."""
