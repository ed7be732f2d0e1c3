"""Policies that learned: DL2's, and ours over sets of jobs. numpy alone; ``services/learner/jobs`` trains them."""
