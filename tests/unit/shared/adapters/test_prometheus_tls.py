"""A Prometheus behind a CA of the cluster's own: trusted where it is named, also after it was replaced."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from services.autoscaler.settings import AutoscalerSettings
from services.coordinator.settings import CoordinatorSettings
from shared.adapters.prometheus import PrometheusClient
from shared.errors import ConfigError
from tests.certificates import TestCa


async def serving(tls: ssl.SSLContext) -> tuple[web.AppRunner, str]:
    """A Prometheus that answers 1 to everything."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"status": "success", "data": {"resultType": "scalar", "result": [0, "1"]}})

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "localhost", 0, ssl_context=tls)
    await site.start()
    return runner, f"https://localhost:{runner.addresses[0][1]}"


async def test_a_ca_of_its_own_is_trusted_where_it_is_named_and_followed(tmp_path: Path):
    inbound, _ = TestCa().contexts(tmp_path, "localhost")
    ca = tmp_path / "localhost-ca.pem"
    runner, url = await serving(inbound)
    try:
        async with PrometheusClient(url) as stranger:
            with pytest.raises(ConfigError, match="certificate"):
                await stranger.query("up")
        async with PrometheusClient(url, ca_file=ca) as client:
            assert [row.samples[0][1] for row in await client.query("up")] == [1.0]
            right = ca.read_bytes()
            TestCa().write(ca)
            os.utime(ca, ns=(1, 1))
            with pytest.raises(ConfigError, match="certificate"):
                await client.query("up")
            ca.write_bytes(right)
            await client.query("up")
            ca.write_text("no certificate")
            with pytest.raises(ConfigError, match=rf"prometheus_ca: {ca} cannot be used: .*PEM"):
                await client.query("up")
            ca.unlink()
            with pytest.raises(ConfigError, match=rf"prometheus_ca: {ca} cannot be used: No such file"):
                client.check()
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("kind", [AutoscalerSettings, CoordinatorSettings])
def test_settings_that_do_not_fit_each_other_are_named(kind: type, tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    for given, expected in [
        ({"prometheus": "prometheus:9090"}, "prometheus: .* is no URL"),
        ({"prometheus": "http://p:9090", "prometheus_ca": file}, "prometheus: .* without TLS though prometheus_ca"),
        ({"prometheus_ca": file}, "prometheus_ca: .* give its URL too"),
        ({"prometheus": "https://p:9090", "prometheus_ca": tmp_path / "none"}, "prometheus_ca: .* is no file"),
    ]:
        with pytest.raises(ValueError, match=expected):
            kind(**given)
    kind(prometheus="https://[fd00::9]:9090", prometheus_ca=file, prometheus_token_file=file)
