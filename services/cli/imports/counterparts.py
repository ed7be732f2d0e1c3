"""What stands here for what people have of others: plugins from outside of Kubernetes, settings of the process.

By name, a sentence that ends a line of the report: what to use instead, or why nothing is lost.
"""

from __future__ import annotations

POD_GROUPS = "pod groups are placed together without it (docs/gangs.md)"
QUEUES = "write Queue objects (docs/queues.md)"
NUMA = "nodes' zones are judged without it (docs/numa.md)"
USAGE = "give the profile policy: ee, el or lb, which go by what nodes use (docs/policies/deepsets.md)"
LATENCY = "say what latency the pod bears by annotations (docs/sensors.md)"
DEVICES = "GPUs are shared by conclave.io/gpu-milli, and devices claimed by DRA (docs/gpus.md)"

OUT_OF_TREE = {
    # kubernetes-sigs/scheduler-plugins
    "CapacityScheduling": QUEUES,
    "Coscheduling": POD_GROUPS,
    "CrossNodePreemption": "a pod group's victims are looked for on all nodes (docs/gangs.md)",
    "LoadVariationRiskBalancing": USAGE,
    "LowRiskOverCommitment": USAGE,
    "NetworkOverhead": LATENCY,
    "NodeResourceTopologyMatch": NUMA,
    "NodeResourcesAllocatable": "give the profile policy: most-allocated or least-allocated (docs/policies/README.md)",
    "Peaks": "give the profile policy: power, which counts what nodes draw (docs/policies/power.md)",
    "PodState": "room of pods that leave is counted by nominations already",
    "PreemptionToleration": 'annotate pods with conclave.io/preemptible: "false"',
    "QOSSort": "units are ordered by priority, queue and age (docs/queues.md)",
    "SySched": "there is no counterpart; bring a score of your own (docs/plugins.md)",
    "TargetLoadPacking": USAGE,
    "TopologicalSort": "units are ordered by priority, queue and age (docs/queues.md)",
    "Trimaran": USAGE,
    # Koordinator
    "DeviceShare": DEVICES,
    "ElasticQuota": QUEUES,
    "LoadAwareScheduling": USAGE,
    "NodeNUMAResource": NUMA,
    "Reservation": "a Reservation of ours, by conclave reserve (docs/reservations.md)",
}

GONE = {
    "AzureDiskLimits": "NodeVolumeLimits counts them",
    "CinderLimits": "NodeVolumeLimits counts them",
    "EBSLimits": "NodeVolumeLimits counts them",
    "GCEPDLimits": "NodeVolumeLimits counts them",
    "NodeLabel": "use NodeAffinity with addedAffinity",
    "NodePreferAvoidPods": "it is gone since 1.24; use taints",
    "NodeResourcesLeastAllocated": "use NodeResourcesFit with scoringStrategy LeastAllocated",
    "NodeResourcesMostAllocated": "use NodeResourcesFit with scoringStrategy MostAllocated",
    "RequestedToCapacityRatio": "use NodeResourcesFit with scoringStrategy RequestedToCapacityRatio",
    "SelectorSpread": "use PodTopologySpread, whose system default spreads alike",
    "ServiceAffinity": "use InterPodAffinity in the pods",
}
"""Plugins of releases before v1, which kube-scheduler refuses today."""

PROCESS = {
    "clientConnection": "the mesh has settings of its own: --kubeconfig, and none for rates, which follow the server",
    "delayCacheUntilActive": "a standby keeps a mirror unless it has --standby=cold",
    "enableContentionProfiling": "there is no such profile of a process",
    "enableProfiling": "there is no such profile of a process",
    "healthzBindAddress": "health and metrics are at --listen",
    "leaderElection": "leaders are elected in etcd: --lease-ttl-s; a Lease keeps other meshes out: --cluster-lease-s",
    "metricsBindAddress": "health and metrics are at --listen",
    "parallelism": "all nodes are judged at once, by arrays; agents share them",
    "percentageOfNodesToScore": "all nodes are scored",
    "podInitialBackoffSeconds": "a pod is tried again when something happens that may help it",
    "podMaxBackoffSeconds": "a pod is tried again when something happens that may help it",
}
"""Fields beside profiles and extenders: none has an effect here."""
