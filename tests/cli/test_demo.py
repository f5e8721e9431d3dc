"""`pequod demo`: everything at once, as processes."""

import importlib.util
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from pequod.cli import main
from tests.live import until

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "pequod", "demo"]


def test_every_page_is_there():
    done = subprocess.run(
        [*COMMAND, "--smoke"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("every page is there\n")
    assert done.stderr == ""


def test_it_ends_cleanly(tmp_path):
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*COMMAND, "--no-browser"], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        until(lambda: "Ctrl-C" in log.read_text() or process.poll() is not None)
        ports = [int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", log.read_text())]
        assert len(ports) == 3, log.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
    assert log.read_text().endswith("stopped\n")
    for port in ports:
        with socket.socket() as one:
            assert one.connect_ex(("127.0.0.1", port)) != 0


def test_what_ends_by_itself_is_told(monkeypatch, capsys):
    def start(stack):
        died = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
        died.wait()
        return {"twip": "127.0.0.1:1"}, {"twip": died}

    monkeypatch.setattr("pequod.cli.demo._start", start)
    assert main(["demo", "--no-browser"]) == 3
    assert "the process of twip has ended (status 7)" in capsys.readouterr().err


def test_an_app_that_dies_ends_the_wait(monkeypatch, capsys):
    monkeypatch.setattr("pequod.cli.demo.APPS", {"no_such_app": 8009})
    assert main(["demo"]) == 3
    assert "nothing answers" in capsys.readouterr().err


def test_without_jinja_it_says_how_to_get_it(monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "jinja2" else found(name)
    )
    assert main(["demo"]) == 2
    assert "pequod[apps]" in capsys.readouterr().err


def test_without_the_apps_it_says_where_they_are(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["demo"]) == 2
    assert "make demo" in capsys.readouterr().err
