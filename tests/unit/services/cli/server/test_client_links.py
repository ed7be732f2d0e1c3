"""What a server says of its own pages is a link to whoever asked it."""

from __future__ import annotations

import json

import pytest

from services.cli.server.client import decoded

URL = "http://127.0.0.1:40123"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"items": [{"page": "/ui/reasons.html#x"}]}, {"items": [{"page": f"{URL}/ui/reasons.html#x"}]}),
        ({"findings": [{"runbook": "/ui/runbooks.html#x"}]}, {"findings": [{"runbook": f"{URL}/ui/runbooks.html#x"}]}),
        ({"runbook": "https://wiki/runbooks#x"}, {"runbook": "https://wiki/runbooks#x"}),
        ({"name": "/ui/", "page": 3}, {"name": "/ui/", "page": 3}),
    ],
    ids=["a reason", "a finding", "an address of the operators' own", "no page"],
)  # fmt: skip
def test_pages_of_the_server_are_links_and_all_else_stays(found: object, told: object) -> None:
    assert decoded(json.dumps(found).encode(), URL) == told
