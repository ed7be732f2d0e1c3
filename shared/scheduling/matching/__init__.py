"""Selectors, tolerations, affinity terms, topology domains, volumes: what matches what."""
