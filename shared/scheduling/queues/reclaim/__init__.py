"""Who gives back: what was borrowed from a queue, and what it uses beyond a lowered limit."""
