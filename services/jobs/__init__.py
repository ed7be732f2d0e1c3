"""Elastic training jobs: turns `TrainingJob` objects into groups of workers, grows and shrinks them while they run."""
