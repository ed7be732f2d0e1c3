"""``python -m services.learner``: the name by which the cards of shipped weights say how they were trained.

The learner is the lab's: ``python -m lab.learner``.
"""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("lab.learner", run_name="__main__", alter_sys=True)
