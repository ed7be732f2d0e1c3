"""Rules calibrated for each workload, and what nobody could do better: what a learned autoscaler is measured by."""
