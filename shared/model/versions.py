"""Which of two versions of an object is the newer one."""

from __future__ import annotations


def newer(rv: str, than: str) -> bool:
    """Whether resourceVersion ``rv`` is certainly newer.

    They compare as decimal numbers since Kubernetes 1.35 (KEP-5504); where either is not one, nothing is certain.
    """
    return rv.isdecimal() and than.isdecimal() and int(rv) > int(than)
