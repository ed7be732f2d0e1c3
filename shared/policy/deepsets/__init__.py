"""The learned policies ``ee``, ``lb`` and ``el``, and what they see of nodes."""
