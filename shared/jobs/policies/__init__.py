"""Policies that divide GPUs over training jobs, one family per file. They know ``shared.jobs.observation`` alone."""
