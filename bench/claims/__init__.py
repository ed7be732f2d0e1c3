"""Pods that claim devices by a template: kube-scheduler and Conclave in turns (``python -m bench.claims``)."""
