"""Ask a real API server about every definition, and keep what it says.

    python -m tests.definitions.record URL TOKEN CA_FILE

writes ``verdicts.json``. The server is asked with ``dryRun=All``: it judges and stores nothing.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys

import aiohttp

from tests.definitions.cases import CASES, VERDICTS, Json, verdict

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All"
AT_ONCE = 4


async def ask(url: str, token: str, ca_file: str) -> dict[str, Json]:
    """The server's verdict on each definition, by name."""
    found: dict[str, Json] = {}
    turn = asyncio.Semaphore(AT_ONCE)
    headers = {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca_file))
    async with aiohttp.ClientSession(url, headers=headers, connector=connector) as session:

        async def one(name: str, definition: Json) -> None:
            async with turn, session.post(PATH, json=definition) as answer:
                found[name] = verdict(answer.status, await answer.json())

        await asyncio.gather(*(one(name, definition) for name, definition in CASES.items()))
    return {name: found[name] for name in CASES}


def main() -> None:
    url, token, ca_file = sys.argv[1:]
    VERDICTS.write_text(json.dumps(asyncio.run(ask(url, token, ca_file)), indent=1) + "\n")


if __name__ == "__main__":
    main()
