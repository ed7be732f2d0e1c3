"""Policies: heuristics and learned models behind one interface. numpy only, no I/O, no torch."""
