"""``conclave explain``: why a pod is where it is, from a mesh, a cluster alone or a file."""
