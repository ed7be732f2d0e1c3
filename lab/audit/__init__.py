"""The audit: recompute from the API server's file alone what the mesh claims. Shares no code with the scheduler."""
