"""Links over real sockets that are slow, silent or cut: a proxy stands between two servers."""

import asyncio
import time

import pytest

from pequod import AsyncClient, SourceDown, prefix
from tests.cluster.live import JOINS, running, started, until, write_map


class Proxy:
    """Hands bytes on, late, or not at all, or cuts all connections."""

    def __init__(self, port):
        self._target = port
        self.delay = 0.0
        self.is_silent = False
        self._writers = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.cut()

    def cut(self):
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader, writer):
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, other_writer}
        await asyncio.gather(self._pass(reader, other_writer), self._pass(other_reader, writer))

    async def _pass(self, reader, writer):
        try:
            while data := await reader.read(1 << 16):
                await asyncio.sleep(self.delay)
                while self.is_silent:
                    await asyncio.sleep(0.01)
                writer.write(data)
        except OSError:
            pass
        writer.close()


def test_slow_silent_and_cut_links(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="a", computes="x")

    async def scenario():
        async with running(path, "a") as servers:
            port = int(servers["a"].url.rpartition(":")[2])
            async with Proxy(port) as proxy, AsyncClient(servers["a"].url) as home:
                far = tmp_path / "far.toml"
                far.write_text(path.read_text().replace(f":{port}", f":{proxy.port}"))
                servers["x"] = await started(far, "x")
                node = servers["x"].node
                async with AsyncClient(servers["x"].url) as pq:
                    await pq.add_join(JOINS)
                    await pq.put_many({"s|ann|bob": "1", "p|bob|0000000001": "one"})
                    assert len(await pq.scan(*prefix("t|ann|"))) == 1

                    proxy.delay = 0.05
                    for number in range(2, 6):
                        token = await home.put(f"p|bob|{number:010}", "late")
                        assert len(await pq.scan(*prefix("t|ann|"), after=token)) == number

                    proxy.delay = 0.0
                    for number in range(6, 10):
                        proxy.cut()
                        token = await home.put(f"p|bob|{number:010}", "cut")
                        assert len(await pq.scan(*prefix("t|ann|"), after=token)) == number
                    one = node.subscriptions["a"]
                    assert one.resumed >= 3, "what was missed is sent"
                    assert one.restarted == 0

                    proxy.is_silent = True
                    await home.put("p|bob|0000000010", "unheard")
                    node._read_seconds = 0.3
                    began = time.monotonic()
                    await until(lambda: node.clock() > node.fresh_until)
                    with pytest.raises(SourceDown, match="home a has not been heard of"):
                        await pq.scan(*prefix("t|ann|"))
                    answer = await pq.read(*prefix("t|ann|"), stale=60)
                    assert len(answer.rows) == 9
                    assert 1.0 < answer.age < 2.0 + time.monotonic() - began
                    node._read_seconds = 20.0
                    proxy.is_silent = False
                    assert len(await pq.scan(*prefix("t|ann|"))) == 10

    asyncio.run(asyncio.wait_for(scenario(), 40.0))
