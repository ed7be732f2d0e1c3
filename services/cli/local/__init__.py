"""Processes of a mesh on this machine: ``conclave up`` and ``run``, etcd, restarts."""
