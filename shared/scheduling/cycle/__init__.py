"""Kubernetes' scheduling cycle over whole tables: PreFilter, Filter, dry runs, Score."""
