"""The experiments of the papers: environments, traces, and their evaluation."""
