"""Pure decisions: filters, scores, queue, cache, conflict rule, partitioning. No I/O; time and randomness come in."""
