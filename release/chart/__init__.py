"""The Helm chart, made of the same base and components as the overlays (ADR 0099).

switches --> variants.py: which components --kubectl kustomize--> objects of each variant
objects  --> merging.py: one tree with guards (conditions.py) --> templates/, values.yaml, values.schema.json
"""
