"""The service of elastic training jobs: one leader turns TrainingJobs into pod groups and pods."""
