"""Policies that learned: DL2's, and ours over sets of jobs. numpy alone; ``lab/learner/jobs`` trains them."""
