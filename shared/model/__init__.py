"""Frozen data of the domain: no I/O, no clock, no torch. Sits below everything but ``shared.errors``.

``gc=False``: values without cycles, of which there are as many as pods. The garbage collector need not visit them, and
its pauses stay short however many there are (``bench/parts/standing_pods.py``).
"""
