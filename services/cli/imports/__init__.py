"""``conclave import-config``: configurations of other schedulers as ours."""
