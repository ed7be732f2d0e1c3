"""The coordinator's HTTP faces: the admin API, and its part of the peer listener (``peer_routes``).

``routes/`` holds one file per resource, with its schemas, its handlers and its rows of the table (``table``); ``desk``
is what handlers work with, ``opening`` makes the listener of it. What stands around every handler is
``shared.runtime.http``.
"""
