"""Protobuf request bodies: what typed Go clients (kubectl's generators, client-go) send."""
