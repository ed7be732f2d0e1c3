"""HTTP/1.1 by hand over kept-alive connections: what calls between services and to the API server go over."""
