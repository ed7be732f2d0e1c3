"""Keeps matrix products to one core. Importing it acts, so an entry point imports it before anything else.

OpenBLAS splits products of some hundred rows over all cores. On a machine that does anything else its threads then
spin for each other: scoring 1,000 nodes took 48 ms instead of 3 ms beside a busy neighbour. Whoever sets the variable
keeps what was set; several processes are the way to use several cores.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
