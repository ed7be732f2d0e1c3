"""The API server behind the ports: configuration, exchanges, lists, watches."""
