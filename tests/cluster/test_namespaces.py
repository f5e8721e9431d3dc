"""Servers in network namespaces, as on two machines: the cable between them is pulled."""

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from pequod import AsyncClient, SourceDown, Unavailable, prefix
from tests.cluster.live import JOINS

# This process reaches x over one cable, and x reaches the home over another.
NAMES = {name: f"pequod-{os.getpid()}-{name}" for name in "ax"}
OURS = f"pq{os.getpid()}"
SETUP = f"""
ip netns add {NAMES["a"]}
ip netns add {NAMES["x"]}
ip -n {NAMES["a"]} link set lo up
ip -n {NAMES["x"]} link set lo up
ip -n {NAMES["x"]} link add cable type veth peer name cable netns {NAMES["a"]}
ip -n {NAMES["a"]} addr add 10.213.7.1/30 dev cable
ip -n {NAMES["x"]} addr add 10.213.7.2/30 dev cable
ip -n {NAMES["a"]} link set cable up
ip -n {NAMES["x"]} link set cable up
ip link add {OURS} type veth peer name ours netns {NAMES["x"]}
ip addr add 10.213.8.1/30 dev {OURS}
ip -n {NAMES["x"]} addr add 10.213.8.2/30 dev ours
ip link set {OURS} up
ip -n {NAMES["x"]} link set ours up
"""
MAP = """
compute = ["x"]
[nodes]
a = "pequod://10.213.7.1:7709"
x = "pequod://10.213.8.2:7709"
[[partition]]
key = "p|<poster>|<time:10>"
hash = "poster"
homes = ["a"]
[[partition]]
table = "s"
home = "a"
"""


def ip(command: str) -> bool:
    return subprocess.run(command.split(), capture_output=True, check=False).returncode == 0


@pytest.fixture
def servers(tmp_path):
    if not shutil.which("ip") or not ip(f"ip netns add {NAMES['a']}-try"):
        pytest.skip("network namespaces need iproute2, and root")
    ip(f"ip netns del {NAMES['a']}-try")
    (tmp_path / "cluster.toml").write_text(MAP)
    with ExitStack() as stack:
        stack.callback(ip, f"ip link del {OURS}")
        for name in NAMES.values():
            stack.callback(ip, f"ip netns del {name}")
        if not all(map(ip, SETUP.strip().splitlines())):
            pytest.skip("network namespaces are not to be had here")
        for name, namespace in NAMES.items():
            command = [sys.executable, "-m", "pequod", "serve", "--cluster", "cluster.toml"]
            command += ["--node", name, "--host", "0.0.0.0", "--insecure", "--log-level", "error"]
            process = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *command],
                cwd=tmp_path,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def test_the_cable_is_pulled(servers):
    async def scenario():
        async with AsyncClient("pequod://10.213.8.2:7709", timeout=20.0) as pq:
            while True:
                try:
                    await pq.add_join(JOINS)
                    break
                except (Unavailable, SourceDown):
                    await asyncio.sleep(0.1)
            session = pq.session()
            await session.put_many({"s|ann|bob": "1", "p|bob|0000000001": "one"})
            assert len(await session.scan(*prefix("t|ann|"))) == 1
            assert ip(f"ip -n {NAMES['x']} link set cable down")
            await asyncio.sleep(1.1)  # for so long, copies count as fresh
            answer = await session.read(*prefix("t|ann|"), stale=60)
            assert len(answer.rows) == 1
            assert answer.age > 1.0
            failures = await asyncio.gather(
                pq.scan(*prefix("t|ann|")),
                pq.put("p|bob|0000000002", "unheard"),
                return_exceptions=True,
            )
            for failure in failures:
                assert isinstance(failure, SourceDown | Unavailable)
                assert "home a" in str(failure)
            assert ip(f"ip -n {NAMES['x']} link set cable up")
            while True:
                try:
                    await session.put("p|bob|0000000002", "again")
                    break
                except (SourceDown, Unavailable):
                    await asyncio.sleep(0.1)
            assert len(await session.scan(*prefix("t|ann|"))) == 2

    asyncio.run(asyncio.wait_for(scenario(), 60.0))
