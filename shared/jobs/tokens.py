"""The token by which a training job reports: an HMAC of its name and uid, so that nothing has to be stored per job.
Pure.

It opens one door, the reports of this very object; a job that is made anew under the same name has another.
"""

from __future__ import annotations

import hashlib
import hmac

KEY_BYTES = 32


def report_token(key: bytes, job: str, uid: str) -> str:
    """``job``: ``namespace/name``."""
    return hmac.new(key, f"{job}\0{uid}".encode(), hashlib.sha256).hexdigest()


def is_token(key: bytes, job: str, uid: str, shown: str) -> bool:
    """Whether ``shown`` is the job's token; takes the same time whatever it is."""
    return hmac.compare_digest(report_token(key, job, uid).encode(), shown.encode("utf-8", "replace"))
