"""The spread of learned policies over training seeds: see ``__main__``."""
