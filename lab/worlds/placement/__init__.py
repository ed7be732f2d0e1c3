"""The small worlds in which suites let policies place pods."""
