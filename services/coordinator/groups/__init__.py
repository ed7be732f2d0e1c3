"""Pod groups in the coordinator: whether their members may be tried, and what becomes of those that cannot run."""
