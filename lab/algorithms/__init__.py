"""Learning algorithms, each one file that reads from top to bottom; a run brings networks, episodes and validation.

The target of agents is in ``lab.learner.marl.learner``, policy iteration in ``lab.learner.frag``.
"""
