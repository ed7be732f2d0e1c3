"""Plans at the binder, and what follows from their results."""
