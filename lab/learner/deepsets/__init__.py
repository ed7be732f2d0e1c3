"""Training of ``ee``, ``lb`` and ``el``."""
