"""Training, a folder per family of policies: ``python -m lab.learner train POLICY``."""
