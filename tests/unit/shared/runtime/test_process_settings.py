"""What every service is told: what cannot be meant is refused at start, in one line that names the setting."""

from __future__ import annotations

import pytest

from shared.runtime.process import ProcessSettings


@pytest.mark.parametrize("url", ["", "http://10.0.0.7:8700", "http://[fd00::1]:8700", "http://agent-1", "http://a:1/"])
def test_a_url_that_peers_can_call_is_advertised(url: str) -> None:
    assert ProcessSettings(advertise=url).advertise == url


@pytest.mark.parametrize(
    "url", ["agent-1:8700", "fd00::1", "http://fd00::1:8700", "http://a:port", "http://:8700", "ftp://a:1", "http://[a"]
)
def test_a_url_that_no_peer_can_call_is_refused_by_who_would_advertise_it(url: str) -> None:
    """It registered, looked healthy, and was told by the others alone: not a URL."""
    with pytest.raises(ValueError, match="advertise"):
        ProcessSettings(advertise=url)
