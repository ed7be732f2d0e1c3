"""Learning to divide GPUs over training jobs."""
