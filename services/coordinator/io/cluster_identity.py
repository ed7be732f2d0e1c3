"""What people call the cluster: the setting, else the kubeconfig's cluster, else the first part of kube-system's uid.

The uid is the cluster's own (it lives as long as the cluster does) and comes with the namespaces that are watched
anyway, so no right beyond those is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.kube.objects import ObjectMeta

SYSTEM_NAMESPACE = "kube-system"
UID_CHARS = 8


@dataclass(slots=True)
class ClusterIdentity:
    """``setting``: cluster_name; ``context``: the kubeconfig's name of it; ``uid``: once the namespaces are listed."""

    setting: str = ""
    context: str = ""
    uid: str = ""

    def saw(self, namespace: ObjectMeta) -> None:
        """A namespace was listed or has changed."""
        if namespace.name == SYSTEM_NAMESPACE and namespace.uid:
            self.uid = namespace.uid

    @property
    def named(self) -> tuple[str, str]:
        """(name, what it comes from: setting, context or uid); both empty while nothing is known."""
        if self.setting:
            return self.setting, "setting"
        if self.context:
            return self.context, "context"
        return (self.uid[:UID_CHARS], "uid") if self.uid else ("", "")
