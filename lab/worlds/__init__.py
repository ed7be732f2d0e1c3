"""What episodes are played in: clusters, service graphs, training jobs."""
