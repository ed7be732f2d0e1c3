"""One term as a pure machine: events in, instructions out; takeover, sweeps, plans and their answers."""
