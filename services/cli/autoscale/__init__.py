"""``conclave autoscale``: replicas of services, by rule and by learned policies."""
