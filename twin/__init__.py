"""The twin: a simulated cluster behind a Kubernetes API, and its controllers."""
