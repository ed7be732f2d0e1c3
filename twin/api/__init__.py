"""The HTTP face of the twin: the only I/O of the API server."""
