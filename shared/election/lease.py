"""The arithmetic of a lease: how long its holder may rely on it, and which settings make that safe.

Why apart from the elector: leadership and membership both count like this, and the formula is the whole safety
argument in time (in etcd itself the term fences, whatever clocks do).

Validity: a renewal sent at ``t`` by the holder's clock reaches etcd at ``t`` or later, so the lease lives at least
until ``t + ttl`` (in etcd's time). The holder relies on it until ``t + renew_deadline_s`` only. With both clocks at
rates within ``1 ± clock_rate_bound`` the holder stops first if
``renew_deadline_s · (1 + bound) / (1 - bound) < lease_ttl_s``. Counting from the *reply* would add the unknown time
that the reply took, and two leaders could be valid at once (there is a test that shows it).

All times are seconds of ``CLOCK_BOOTTIME``, which counts suspend; no clock is ever compared with another host's.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Timers of leadership and membership. Cross-checked when built: ``ConfigError`` names what does not fit."""

    lease_ttl_s: int = 3
    """TTL asked of etcd; a dead holder is noticed this much later. 1 to 600."""
    renew_deadline_s: float = 2.4
    """How long after sending a renewal the lease may be relied upon."""
    renew_every_s: float = 1.0
    """From sending one renewal to sending the next."""
    call_timeout_s: float = 0.7
    """Deadline of one call to etcd."""
    retry_s: float = 0.2
    """Pause after a call that failed."""
    clock_rate_bound: float = 0.1
    """How far clock rates may differ from true time: 0.1 is 10 %; NTP slews at most 0.05 %, virtual machines a little
    more, so this is far on the safe side."""
    observe_every_s: float = 15.0
    """A follower reads the leader's key this often whatever its watch says; the watch alone is a hint."""

    def __post_init__(self) -> None:
        if not 1 <= self.lease_ttl_s <= 600:
            raise ConfigError("lease_ttl_s: must be 1 to 600")
        if min(self.renew_every_s, self.call_timeout_s, self.retry_s, self.observe_every_s) <= 0:
            raise ConfigError("lease: renew_every_s, call_timeout_s, retry_s and observe_every_s must be positive")
        if not 0 <= self.clock_rate_bound < 0.5:
            raise ConfigError("clock_rate_bound: must be 0 to 0.5")
        # client-go checks LeaseDuration > RenewDeadline > 1.2 * RetryPeriod (leaderelection.go); ours adds the rates.
        safe_s = self.lease_ttl_s * (1 - self.clock_rate_bound) / (1 + self.clock_rate_bound)
        if not self.renew_deadline_s < safe_s:
            raise ConfigError(
                f"renew_deadline_s: {self.renew_deadline_s} must be below {safe_s:.2f} "
                f"(lease_ttl_s {self.lease_ttl_s} at a clock rate bound of {self.clock_rate_bound})"
            )
        if not self.renew_deadline_s > 1.2 * self.renew_every_s:
            raise ConfigError(
                f"renew_every_s: 1.2 x {self.renew_every_s} must be below renew_deadline_s {self.renew_deadline_s}"
            )
        if not self.renew_every_s + self.call_timeout_s + self.retry_s < self.renew_deadline_s:
            raise ConfigError(
                "call_timeout_s: one renewal that times out must leave room for another before renew_deadline_s "
                f"({self.renew_every_s} + {self.call_timeout_s} + {self.retry_s} >= {self.renew_deadline_s})"
            )

    @classmethod
    def for_ttl(cls, lease_ttl_s: int) -> LeaseSettings:
        """The default proportions at another TTL."""
        return cls(
            lease_ttl_s=lease_ttl_s,
            # Clock rates 10 % off leave (1 - 0.1) / (1 + 0.1) = 0.818 of the TTL; three renewals go into one TTL.
            renew_deadline_s=0.8 * lease_ttl_s,
            renew_every_s=lease_ttl_s / 3,
            call_timeout_s=0.7 * lease_ttl_s / 3,
            retry_s=0.2 * lease_ttl_s / 3,
        )

    def valid_until(self, *, sent_at: float, ttl_s: float) -> float:
        """Until when a grant or renewal sent at ``sent_at`` and answered with ``ttl_s`` may be relied upon."""
        margin_s = self.lease_ttl_s - self.renew_deadline_s
        # etcd may grant more than was asked; relying on more would need a larger margin, so it is not used.
        return sent_at + min(ttl_s, self.lease_ttl_s) - margin_s
