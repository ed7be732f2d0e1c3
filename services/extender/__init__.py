"""Our policies as an extender of kube-scheduler: it asks, and places by itself."""
