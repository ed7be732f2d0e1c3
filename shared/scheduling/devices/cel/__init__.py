"""Selectors in CEL: values, what an expression may cost, and what it said of devices that are alike."""
