"""The test stand of benches with real processes: an API server, the scheduler that is measured, the load's own side."""
