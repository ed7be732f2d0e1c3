"""Analysis before transfer: what a trained policy does, told from its decisions on the twin."""
