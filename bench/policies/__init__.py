"""What policies decide and how they are learned: algorithms, recipes, ablations of placement, jobs and autoscaling."""
