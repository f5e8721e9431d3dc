"""The description of the HTTP interface, tried on a live server by schemathesis."""

import subprocess
import sys

import pytest

from pequod.server.openapi import document
from tests.live import LiveServer
from tests.server.helpers import serving

EXAMPLES = 25  # for each operation


def test_every_route_is_described(run):
    async def work():
        async with serving() as server:
            paths = server._http._routes._paths
            described = document()["paths"]
            assert paths.keys() - {"/console.js", "/console.css"} == described.keys()
            for path, route in ((path, paths[path]) for path in described):
                assert set(described[path]) == {route.verb.lower()}

    run(work())


@pytest.mark.parametrize("has_tokens", [True, False])
def test_tokens_are_described_where_there_are_some(has_tokens):
    paths = document(has_tokens)["paths"]
    for path in ("/v1/get", "/v1/scan", "/v1/count"):
        names = [one["name"] for one in paths[path]["get"]["parameters"]]
        assert ("after" in names) == has_tokens


@pytest.mark.parametrize("token", [None, "a-token-of-the-tests"])
def test_schemathesis_finds_nothing(token, tmp_path):
    with LiveServer(token=token) as live:
        live.server.cache.put_many([("k|x|1", "1"), ("k|x|2", b"\xff")])
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{live.http}/openapi.json"]
        command += ["--max-examples", str(EXAMPLES), "--seed", "1", "--no-color"]
        command += ["--exclude-path", "/v1/watch"]  # its answer does not end
        if token:
            command += ["--header", f"Authorization: Bearer {token}"]
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stdout + found.stderr
