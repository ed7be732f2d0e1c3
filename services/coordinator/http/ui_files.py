"""The dashboard's static files under ``/ui/``: open to everybody, since they hold nothing but the page itself.

They are read once at start, from the package, so that no path from outside ever reaches the file system. Every answer
carries a policy that lets the page load from this server alone and run no inline script, and that no other page may
frame it. The API is not known here: the page signs in and asks for everything else itself.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from aiohttp import web

FOLDER = Path(__file__).parents[1] / "ui"

MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".md": "text/markdown; charset=utf-8",
}
"""What is served; any other file in the folder is not."""

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class UiFile:
    """One file as it is sent."""

    media_type: str
    body: bytes
    etag: str
    cache: str

    @cached_property
    def packed(self) -> bytes:
        """The same with gzip; made when a browser first asks, since a leader starts without one."""
        return gzip.compress(self.body, mtime=0)


def read_files(folder: Path = FOLDER) -> dict[str, UiFile]:
    """Every file by its path below ``/ui/``. The page itself is never kept by a browser, so that an upgrade shows at
    once; the others are asked for again each time and cost an empty answer while they are the same."""
    found = {}
    for path in sorted(folder.rglob("*")):
        media_type = MEDIA_TYPES.get(path.suffix)
        if media_type is None or not path.is_file():
            continue
        body = path.read_bytes()
        found[path.relative_to(folder).as_posix()] = UiFile(
            media_type,
            body,
            f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            "no-store" if path.suffix == ".html" else "no-cache",
        )
    return found


def ui_routes(folder: Path = FOLDER) -> list[web.RouteDef]:
    """``GET /ui``, which leads to ``/ui/``, and every file; whatever else is asked for below is 404."""
    files = read_files(folder)

    async def page(_: web.Request) -> web.Response:
        return web.Response(status=308, headers={"Location": "/ui/", "Cache-Control": "no-store"})

    async def file(request: web.Request) -> web.Response:
        found = files.get(request.match_info["path"] or "index.html")
        if found is None:
            raise web.HTTPNotFound
        return _answer(found, request)

    return [web.get("/ui", page), web.get("/ui/{path:.*}", file)]


def _answer(file: UiFile, request: web.Request) -> web.Response:
    headers = {
        **SECURITY_HEADERS, "Cache-Control": file.cache, "ETag": file.etag, "Vary": "Accept-Encoding",
    }  # fmt: skip
    if file.etag in request.headers.get("If-None-Match", "") and file.cache != "no-store":
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = file.media_type
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=file.packed, headers={**headers, "Content-Encoding": "gzip"})
    return web.Response(body=file.body, headers=headers)
