"""Gangs as fast as they go: upstream's shapes, beside lone pods and beside kube-scheduler."""
