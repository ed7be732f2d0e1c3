"""Terms that select pods, nodes or objects."""
