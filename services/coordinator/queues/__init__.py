"""Queue objects in the coordinator: the tree kept true, what is held back told, what was borrowed taken back."""
