"""Servers that a benchmark starts on free ports of this machine, and stops when it is done.

A server runs on one core and the load on another, so that neither takes the other's time.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

START_SECONDS = 60.0
STOP_SECONDS = 10.0
LAST_LINES = 5  # of the log of a server that died

SERVER_CORE, CLIENT_CORE = 0, 1


class ServerProcess:
    """A server in a process of its own, on 127.0.0.1."""

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        directory: "TemporaryDirectory[str] | None" = None,
        user: int | None = None,
        stop_signal: int = signal.SIGTERM,
    ) -> None:
        """Start `command` in a directory that goes when it stops, maybe as another user."""
        self._stop_signal = stop_signal
        self.port = port
        self._directory = directory or TemporaryDirectory()
        self._log = Path(self._directory.name) / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                cwd=self._directory.name,
                user=user,
            )
        pin(self._process.pid, SERVER_CORE)

    def wait(self, ready: str) -> str:
        """Wait for a line that matches `ready` and give it."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            text = self._log.read_text("utf-8", "replace")
            if found := re.search(ready, text):
                return found[0]
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        self.stop()
        raise SystemExit(f"a server did not start:\n{text}")

    def wait_for_port(self) -> None:
        """Wait until it takes connections."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                self.connect().close()
                return
            except ConnectionError:
                time.sleep(0.02)
        log = self._log.read_text("utf-8", "replace")
        self.stop()
        raise SystemExit(f"a server did not start:\n{log}")

    def cpu_seconds(self) -> float:
        """The time that its threads, and those of its children, have spent on a core."""
        return sum(_cpu_nanoseconds(process) for process in self._processes()) / 1e9

    def memory_bytes(self) -> int:
        """The memory of it and its children, what they share counted once."""
        return sum(_proportional_bytes(process) for process in self._processes())

    def _processes(self) -> list[Path]:
        """It and its children in /proc; PostgreSQL has a process for each connection."""
        own = Path(f"/proc/{self._process.pid}")
        found = [own]
        for path in own.glob("task/*/children"):
            found += [Path(f"/proc/{child}") for child in path.read_text().split()]
        return found

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def ended(self) -> str:
        """How it came to an end, with its last words; nothing while it runs."""
        if self._process.poll() is None:
            return ""
        words = "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-LAST_LINES:])
        return f"the server ended with status {self._process.returncode}\n{words}".rstrip()

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.send_signal(self._stop_signal)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _cpu_nanoseconds(process: Path) -> int:
    try:
        tasks = list((process / "task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return 0


def _proportional_bytes(process: Path) -> int:
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", (process / "smaps_rollup").read_text(), re.M)
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return 0
    return int(found[1]) * 1024 if found else 0


def start_pequod(*options: str) -> ServerProcess:
    port = free_port()
    command = [sys.executable, "-m", "pequod", "serve", "--port", str(port), *options]
    server = ServerProcess(command, port)
    server.wait(r"listening on \S+")
    return server


def start_redis() -> ServerProcess | None:
    """Redis without persistence, or None if it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        return None
    port = free_port()
    command = [program, "--port", str(port), "--save", "", "--appendonly", "no"]
    server = ServerProcess([*command, "--bind", "127.0.0.1"], port)
    server.wait("Ready to accept connections")
    return server


def start_memcached() -> ServerProcess | None:
    """memcached with one thread and room for everything, or None if it is not installed."""
    program = shutil.which("memcached")
    if program is None:
        return None
    port = free_port()
    command = [program, "-p", str(port), "-l", "127.0.0.1", "-U", "0", "-t", "1"]
    command += ["-m", "8192", "-I", "16m", "-M"]  # never evict
    if os.getuid() == 0:
        command += ["-u", "root"]
    server = ServerProcess(command, port)
    server.wait_for_port()
    return server


def start_python(module: str, *arguments: str) -> ServerProcess:
    """A server of ours that says "ready" and takes its port first."""
    port = free_port()
    server = ServerProcess([sys.executable, "-m", module, str(port), *arguments], port)
    server.wait("ready")
    return server


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def pin(process: int, core: int) -> None:
    """Keep a process on a core, if there are several and the system can."""
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > core:
        with suppress(OSError):  # a container may have other cores
            os.sched_setaffinity(process, {core})
