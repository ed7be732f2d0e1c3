"""The patch formats of the API: RFC 6902, RFC 7386 and Kubernetes' strategic merge."""
