"""The scores of kube-scheduler's default profile: raw values per row, and how to normalise them."""
