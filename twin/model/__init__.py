"""The twin's pure core: the cluster model and the controllers it plays. Time and randomness come in."""
