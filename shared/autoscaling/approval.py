"""What an operator approves, as one digest: any change of it makes the approval void. Pure.

It covers the whole spec but the approval itself, the pause and the kill switch, which must work at once; and the
weights of the policy, where it has any. Source of the canonical form: JSON with sorted keys and no spaces.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from shared.model.controllers.autoscaler import Autoscaler


def digest_of(document: Mapping[str, object], weights: str = "") -> str:
    """``sha256:...`` of a spec (without what ``Autoscaler.document`` leaves out) and of a policy's weights."""
    text = json.dumps([document, weights], sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def weights_of(policy: object) -> str:
    """The digest of a policy's weights: its ``digest``, or that of its ``weights`` (a weights file); "" without any."""
    return str(getattr(policy, "digest", "") or getattr(getattr(policy, "weights", None), "sha256", ""))


def refusal(scaler: Autoscaler, digest: str) -> str:
    """Why the object's approval (``spec.go``) does not count; "" where it does."""
    go = scaler.go
    if not go.digest:
        return "not approved: read 'conclave autoscale recommend', then 'conclave autoscale approve'"
    if not go.by:
        return "spec.go.by: does not say who approved it"
    if go.digest != digest:
        return (
            "the approval is for another spec or other weights: what was approved has changed since; approve it again"
        )
    return ""
