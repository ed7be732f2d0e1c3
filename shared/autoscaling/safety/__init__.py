"""A_safe: what stands between what a policy wants and what is written. Pure; one file per family of safeguards."""
