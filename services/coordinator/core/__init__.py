"""One term as a pure machine: events in, instructions out; what its parts share; how a term begins."""
