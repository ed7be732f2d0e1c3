"""``conclave top``: the mesh live on a terminal."""
