"""The dashboard's files: what is served, with which headers, and nothing beside it."""

from __future__ import annotations

import gzip
import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fnmatch import fnmatch
from pathlib import Path

import aiohttp
import pytest
import yarl
from aiohttp import web

from services.coordinator.http.ui_files import FOLDER, MEDIA_TYPES, read_files, ui_routes
from shared.runtime.http.listener import listen

ROOT = Path(__file__).parents[5]


@asynccontextmanager
async def served() -> AsyncIterator[aiohttp.ClientSession]:
    """A session whose base is a listener with the files alone."""
    app = web.Application()
    app.add_routes(ui_routes())
    listener = await listen(app)
    try:
        async with aiohttp.ClientSession(base_url=listener.url, auto_decompress=False) as session:
            yield session
    finally:
        await listener.close()


async def test_the_page_is_found_with_and_without_the_slash_and_is_never_kept() -> None:
    async with served() as session, session.get("/ui") as answer:
        assert str(answer.url.path) == "/ui/"
        assert answer.content_type == "text/html"
        assert answer.headers["Cache-Control"] == "no-store"


async def test_every_file_says_what_it_is_and_lets_only_this_server_speak() -> None:
    async with served() as session:
        for path in read_files():
            async with session.get(f"/ui/{path}") as answer:
                assert answer.status == 200, path
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                policy = answer.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'")
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy


async def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    async with served() as session:
        async with session.get("/ui/main.js") as answer:
            etag = answer.headers["ETag"]
        async with session.get("/ui/main.js", headers={"If-None-Match": etag}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")
        async with session.get("/ui/main.js", headers={"If-None-Match": '"another"'}) as answer:
            assert answer.status == 200


async def test_a_packed_file_holds_the_same() -> None:
    async with served() as session, session.get("/ui/main.js", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(await answer.read()) == (FOLDER / "main.js").read_bytes()


@pytest.mark.parametrize(
    "path",
    ["../api/table.py", "..%2fapi%2ftable.py", "%2e%2e/__init__.py", "/etc/passwd", "nothing.js", "views", "x\0.js"],
)
async def test_no_path_leads_out_of_the_folder(path: str) -> None:
    async with served() as session:
        url = yarl.URL("/ui/" + path.replace("\0", "%00"), encoded=True)
        async with session.get(url) as answer:
            assert answer.status == 404


def test_the_page_refers_only_to_files_that_are_served() -> None:
    files = read_files()
    page = files["index.html"].body.decode()
    for name in re.findall(r'(?:src|href)="([^"#][^"]*)"', page):
        assert name in files, name
    assert not re.search(r"<script(?![^>]*src=)|<style| style=| on[a-z]+=", page)
    for path, file in files.items():
        for name in re.findall(r'from "([^"]+)"', file.body.decode()):
            assert (FOLDER / path).parent.joinpath(name).resolve().relative_to(FOLDER.resolve()).as_posix() in files


def test_the_wheel_has_every_file() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    ours = patterns["services.coordinator"]
    for path in (path for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES):
        name = path.relative_to(FOLDER.parent).as_posix()
        assert any(fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in ours), name
