"""The consoles in README.md and docs/ are true: each command prints what stands below it."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

import pytest

from apps.twip import JOINS
from tests.live import SECONDS, LiveServer

ROOT = Path(__file__).parent.parent
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
    if "```console" in path.read_text()
]
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """Each command of a page with the output it shows; servers are started by the test."""
    for console in CONSOLE.findall(page.read_text("utf-8")):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE):
            if not command.startswith("pequod serve"):
                yield command, output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_consoles(page, tmp_path):
    joins = tmp_path / "twip.pq"
    joins.write_text(JOINS, "utf-8")
    with LiveServer(joins=(str(joins),)) as live:
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PEQUOD_URL": live.url,
            "PEQUOD_HTTP": live.http,
        }
        for command, expected in commands(page):
            if shlex.split(command)[0] == "curl":
                command = command.replace("localhost:7709", f"127.0.0.1:{live.port}")
            printed = subprocess.run(
                ["bash", "-c", command],
                env=environment,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS,
                check=False,
            ).stdout
            assert OutputChecker().check_output(expected, printed, ELLIPSIS), (
                f"$ {command}\n{printed}\nis not\n{expected}"
            )


def test_there_are_consoles():
    assert [page.name for page in PAGES] == ["README.md", "server.md"]  # others need no server
