"""Spark does the parts of a job as the plain engine does, on a cluster and by Connect as well."""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from pequod.errors import BadData, BadRequest
from pequod.pipeline.files import Manifest
from pequod.pipeline.java import ensure_java
from pequod.pipeline.jobs import PlainEngine
from pequod.pipeline.spark import Session, SparkEngine
from pequod.pipeline.trace import trace_spec, write_trace
from pequod.pipeline.twip import TwipSpec, write_world

SPEC = TwipSpec(users=3000, edges=20_000, seed=1, posts=500, post_bytes=10)
SECONDS = 120.0  # for a cluster to come up on a busy machine
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    write_world(SPEC, folder / "world", PlainEngine(), 3)
    spec = trace_spec(folder / "world", checks_per_user=5, clients=2)
    write_trace(spec, folder / "world", folder / "trace", PlainEngine())
    return folder


def test_spark_and_plain_write_the_same_files(spark, plain, tmp_path):
    told = []
    engine = SparkEngine(spark)
    world, trace = tmp_path / "world", tmp_path / "trace"
    write_world(SPEC, world, engine, 3, lambda *numbers: told.append(numbers))
    assert told[-1] == (7, 7)
    spec = trace_spec(world, checks_per_user=5, clients=2)
    write_trace(spec, world, trace, engine)
    for folder in ("world", "world/kv", "trace"):
        assert Manifest.load(tmp_path / folder) == Manifest.load(plain / folder)


def test_more_parts_than_users_and_more_than_one_wave(spark, plain, tmp_path):
    manifest = write_world(SPEC, tmp_path, SparkEngine(spark), 9)
    assert manifest.facts == Manifest.load(plain / "world").facts


def test_what_spark_says_is_made_a_sentence(spark, plain):
    def refused(_):
        raise BadRequest("not so")

    def wrong(_):
        return {}["lost"]

    with pytest.raises(BadData, match=r"^not so$"), Session().open() as same:
        SparkEngine(same).run(refused, 1)
    with pytest.raises(BadData, match=r"^Spark failed: .*KeyError: 'lost'$"), Session().open():
        SparkEngine(spark).run(wrong, 1)
    assert spark.range(3).count() == 3


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def cluster_environment():
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    ensure_java(environment)
    environment["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    environment["PYTHONPATH"] = str(ROOT)
    environment["SPARK_DAEMON_JAVA_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return environment


@contextmanager
def daemon(environment, log, *command):
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def wait_for(log, text, times=1):
    end = time.monotonic() + SECONDS
    while log.read_text("utf-8", "replace").count(text) < times:
        assert time.monotonic() < end, log.read_text("utf-8", "replace")
        time.sleep(0.05)


def graph_command(out, *options):
    command = [sys.executable, "-m", "pequod", "pipeline", "graph", "--users", "3000"]
    command += ["--edges", "20000", "--posts", "500", "--post-bytes", "10", "--partitions", "3"]
    return [*command, "--out", str(out), *options]


def test_a_standalone_cluster(plain, tmp_path):
    """One master and two workers on loopback; `--master spark://...` is all that changes."""
    environment = cluster_environment()
    program = f"{environment['SPARK_HOME']}/bin/spark-class"
    master, port = "org.apache.spark.deploy.master.Master", str(free_port())
    worker, url = "org.apache.spark.deploy.worker.Worker", f"spark://127.0.0.1:{port}"
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    log = tmp_path / "master.log"
    with daemon(environment, log, program, master, *here, "--port", port):
        wait_for(log, "I have been elected leader")
        small = ("--cores", "1", "--memory", "600m")
        first, second = (
            daemon(
                environment,
                tmp_path / f"worker{number}.log",
                program,
                worker,
                *here,
                *small,
                "-d",
                str(tmp_path / f"work{number}"),
                url,
            )
            for number in (1, 2)
        )
        with first, second:
            wait_for(log, "Registering worker", 2)
            submit = dict(environment)
            submit["SPARK_CONF_DIR"] = str(conf_folder(tmp_path))
            command = graph_command(tmp_path / "world", "--master", url, "--memory", "600m")
            run = subprocess.run(
                command, env=submit, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            assert run.returncode == 0, run.stderr
    assert Manifest.load(tmp_path / "world") == Manifest.load(plain / "world")


def conf_folder(folder):
    """Settings as an administrator of a cluster would leave them: executors that fit."""
    conf = folder / "conf"
    conf.mkdir()
    text = "spark.executor.memory 500m\nspark.driver.host 127.0.0.1\n"
    text += "spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
    (conf / "spark-defaults.conf").write_text(text + "spark.driver.bindAddress 127.0.0.1\n")
    return conf


def test_spark_connect(plain, tmp_path):
    """A session over the network, which has neither sparkContext nor RDDs."""
    pytest.importorskip("grpc", reason="pip install 'pyspark[connect]'")
    environment = cluster_environment()
    program = f"{environment['SPARK_HOME']}/bin/spark-submit"
    port = free_port()
    log = tmp_path / "connect.log"
    server = (
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", "--driver-memory", "700m"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.ui.enabled=false", "--conf", f"spark.local.dir={tmp_path / 'local'}"),
        "spark-internal",
    )
    with daemon(environment, log, program, *server):
        wait_for(log, "Spark Connect server started")
        command = graph_command(tmp_path / "world", "--remote", f"sc://127.0.0.1:{port}")
        run = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert run.returncode == 0, run.stderr
        joins = tmp_path / "twip.pq"
        joins.write_text("f|<poster>|<user> = copy s|<user>|<poster>;")
        shutil.rmtree(tmp_path / "views", ignore_errors=True)
        command = [sys.executable, "-m", "pequod", "pipeline", "materialize", "--joins", joins]
        command += ["--base", tmp_path / "world" / "kv", "--out", tmp_path / "views"]
        run = subprocess.run(
            [*map(str, command), "--remote", f"sc://127.0.0.1:{port}"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert run.returncode == 0, run.stderr
    assert Manifest.load(tmp_path / "world") == Manifest.load(plain / "world")
    assert Manifest.load(tmp_path / "views").rows == 20_000
