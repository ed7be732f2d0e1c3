"""Experiments with training jobs: tables and workloads read, runs played, schedules written and checked. Pure."""
