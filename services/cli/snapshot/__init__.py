"""``conclave snapshot``: one file of a cluster and its mesh, and that file read as a cluster."""
