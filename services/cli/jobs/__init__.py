"""``conclave jobs``: TrainingJobs, asked of the API server and changed there."""
