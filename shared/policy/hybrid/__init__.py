"""Several policies as one: each scores the candidates, and a weighted mixture of their scores decides."""
