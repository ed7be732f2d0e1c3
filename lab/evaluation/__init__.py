"""Suites that measure policies on the twin, their statistics, results and reports. Pure: numbers in and out."""
