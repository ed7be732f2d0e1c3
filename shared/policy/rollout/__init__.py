"""How a policy comes to decide and goes again: stages, judging, the worth of choices."""
