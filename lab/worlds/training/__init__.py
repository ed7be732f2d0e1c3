"""How fast a training job runs where it stands, what its samples are worth, and a cluster of such jobs. Pure."""
