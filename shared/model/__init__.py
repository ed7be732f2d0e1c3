"""Frozen data of the domain: no I/O, no clock, no torch. Sits below everything but ``shared.errors``."""
