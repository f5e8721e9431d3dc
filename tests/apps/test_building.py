"""docs/building-an-app.md, followed to the letter."""

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from loadgen.servers import free_port
from tests.live import LiveServer, until

PAGE = Path(__file__).parents[2] / "docs" / "building-an-app.md"


def ask(port: int, path: str, verb: str = "GET", body: str | None = None) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body and body.encode(), method=verb
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def test_the_app_of_the_page(tmp_path):
    [text] = re.findall(r"```python\n(import time\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    log = tmp_path / "log"
    with LiveServer() as live:
        port = free_port()
        text = text.replace("localhost:7709", f"127.0.0.1:{live.port}").replace("8080", str(port))
        (tmp_path / "app.py").write_text(text, "utf-8")
        with log.open("w") as output:
            app = subprocess.Popen(
                [sys.executable, "-u", "app.py"], cwd=tmp_path, stdout=output, stderr=output
            )
        try:
            until(lambda: "Running on" in log.read_text() or app.poll() is not None)
            assert app.poll() is None, log.read_text()
            ask(port, "/ann/follows/bob", "PUT")
            ask(port, "/bob", "POST", "Call me Ishmael.")
            assert ask(port, "/ann") == "bob: Call me Ishmael.\n"
        finally:
            app.terminate()
            app.wait(10)
