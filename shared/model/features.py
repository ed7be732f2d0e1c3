"""Features that a node declares (``status.declaredFeatures``) and that some pod needs from its node.

Of what nodes declare only these names are kept: the others decide about no pod (Kubernetes 1.36,
``component-helpers/nodedeclaredfeatures``), and what a node may say stays bounded. Which pods need them is deduced
from their specs in ``shared.kube.pods.convert_demands``. In 1.36 none is taken for
granted of a node that does not name it.
"""

from __future__ import annotations

RESTART_ALL = "RestartAllContainersOnContainerExits"
HOST_USERS = "UserNamespacesHostNetworkSupport"

DECIDING_FEATURES = frozenset({RESTART_ALL, HOST_USERS})
