"""Evaluations as HTML pages."""
