"""The commands of ``conclave`` that need the lab."""
