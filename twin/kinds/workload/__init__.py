"""Controllers' kinds: apps, batch, autoscaling, scale."""
