"""What a pod is a copy of: the name under which its copies' real use is learned.

Requests do not tell a busy pod from an idle one; what they are made from does. In order: the controlling owner, the
recommended or common labels, the images. Pure; two pods of equal key are expected to use alike, no more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

LABELS = ("app.kubernetes.io/name", "app", "k8s-app")
MAX_LENGTH = 128
TEMPLATE_HASH = "pod-template-hash"
"""Label of a Deployment's pods: the end of their ReplicaSet's name, another one for each template."""
_SCHEDULED = re.compile(r"-\d{8,}$")
"""End of the name that a CronJob gives a Job: minutes since 1970."""


def workload_key(
    namespace: str, *, owner: tuple[str, str, str] = ("", "", ""), labels: Mapping[str, str], images: Sequence[str]
) -> str:
    """``namespace/kind:name`` of ``owner`` (apiVersion, kind, name), else of a label, else of the images; "": none.

    What a Deployment or a CronJob makes anew under another name is the same workload: its name's last part is left out.
    """
    _, kind, name = owner
    if name:
        if kind == "ReplicaSet":
            name = name.removesuffix(f"-{labels.get(TEMPLATE_HASH, '')}")
        elif kind == "Job":
            name = _SCHEDULED.sub("", name)
        return f"{namespace}/{kind}:{name}"[:MAX_LENGTH]
    for label in LABELS:
        if labels.get(label):
            return f"{namespace}/{label}:{labels[label]}"[:MAX_LENGTH]
    return f"{namespace}/images:{','.join(images)}"[:MAX_LENGTH] if images else ""
