"""What a request is and who asks: paths, bodies, media types, identities."""
