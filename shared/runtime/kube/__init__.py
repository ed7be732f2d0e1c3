"""Following resources of the API server, and marking pods that are not placed."""
