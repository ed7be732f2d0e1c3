"""CustomResourceDefinitions that an API server refuses or takes, and what a real one said to each."""
