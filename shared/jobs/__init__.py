"""Elastic training jobs: how many workers each is to have, and how fast it runs with them. Pure."""
