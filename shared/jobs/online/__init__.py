"""A policy for training jobs on the live cluster, by stages: what it decides compared with its teacher. Pure."""
