"""The rule of Kubernetes' HorizontalPodAutoscaler (``autoscaling/v2``, release 1.36), to the last rounding. Pure.

``rule.reconcile`` is one reconciliation: what the object says, what was remembered, the scale, the pods and what the
metrics APIs answered go in; the replicas, the status and what to remember come out. ``objects`` and ``convert_*`` read
the API's JSON, ``batch`` the form of ``conclave autoscale hpa --batch``. It reads no clock and writes no scale.
"""
