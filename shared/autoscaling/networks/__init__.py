"""The learned policy for service graphs, and what it makes of an observation. numpy only."""
