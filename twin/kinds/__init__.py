"""The kinds that the twin's API server serves: one strategy per kind; the table of all is ``table.py``."""
