"""The scores of kube-scheduler's default profile: raw values per row, how to normalise them, and what each counts."""

WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
"""Source: kube-scheduler 1.36 ``apis/config/v1/default_plugins.go``."""

MAX_SCORE = 100
"""The greatest that one score gives a node, before its weight."""
