"""``conclave twin``, less ``serve``: capture, replay, traces and series."""
