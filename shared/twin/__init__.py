"""The twin's pure core: the cluster model, workloads and traces, and the audit. Time and randomness come in."""
