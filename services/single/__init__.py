"""The mesh in one process: a candidate coordinator, which decides itself, and a candidate binder, on one event loop."""
