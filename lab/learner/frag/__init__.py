"""Training of ``frag``, the placement policy for GPUs."""
