"""Spark: the one place that makes a session, and the engine that runs the parts of a job on it.

A session is local, on a standalone cluster (`spark://host:port`), or remote by Spark Connect
(`sc://host:port`). Nothing of the pipeline uses `sparkContext`, RDDs or broadcast variables, which
Connect has not. Workers import `pequod`, so they must have it: on this machine they do; elsewhere
install it there, or let `spark-submit --py-files` carry it.
"""

import json
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pequod.errors import BadData, BadRequest, Unavailable
from pequod.pipeline.java import ensure_java
from pequod.pipeline.jobs import Facts, Part, Told, quiet

LOOPBACK = "127.0.0.1"

_WAVES, _LEAST_WAVE = 8, 4
_PORTS = {"sc": 15002, "spark": 7077}
_REACH_SECONDS = 10.0
# Lines of a traceback: an error of Pequod, and any.
_OURS = re.compile(r"^pequod\.errors\.\w+: (.+)$", re.MULTILINE)
_RAISED = re.compile(r"^(\w[\w.]*(?:Error|Exception): .+)$", re.MULTILINE)


@dataclass(frozen=True)
class Session:
    """Where Spark runs; one of `master` and `remote`, and settings beyond the usual ones."""

    master: str = ""  # none: that of spark-submit, else local[*]
    remote: str = ""
    memory: str = "4g"
    settings: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def open(self) -> Iterator[SparkSession]:
        """A session, and afterwards no trace of it."""
        with _sentences():
            if self.remote:
                _reach(self.remote, "sc")
                spark = SparkSession.builder.remote(self.remote).getOrCreate()
                try:
                    yield spark
                finally:
                    spark.stop()
            else:
                with self._classic() as spark:
                    yield spark

    @contextmanager
    def _classic(self) -> Iterator[SparkSession]:
        if self.master.startswith("spark:"):
            _reach(self.master, "spark")
        if (running := SparkSession.getActiveSession()) is not None:
            yield running  # whoever started it stops it
            return
        ensure_java(os.environ)
        # Workers would else be the python3 of the path, which knows nothing of this environment.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        scratch = tempfile.mkdtemp(prefix="pequod-spark-")
        try:
            spark = self._built(scratch)
            try:
                yield spark
            finally:
                spark.stop()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _built(self, scratch: str) -> SparkSession:
        builder: Any = SparkSession.builder.appName("pequod")
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit, which says where
        master = self.master or ("" if submitted else f"local[{os.cpu_count()}]")
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": self.memory,
            "spark.sql.session.timeZone": "UTC",
            # Sizes of files tell little: sorted keys are compressed to a twentieth. What a join is
            # best done by is seen when its sides have been shuffled.
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.adaptive.autoBroadcastJoinThreshold": "64m",
            "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
            "spark.log.level": "ERROR",
        }
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
            settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        if master:
            builder = builder.master(master)
        for name, value in {**settings, **self.settings}.items():
            builder = builder.config(name, value)
        spark: SparkSession = builder.getOrCreate()
        return spark


def _reach(url: str, scheme: str) -> None:
    """Raise if nobody listens at any of the places in a URL: Spark itself tries for minutes."""
    places = url.removeprefix(f"{scheme}://").partition("/")[0].split(",")
    if not url.startswith(f"{scheme}://") or not all(places):
        raise BadRequest(f"{url!r} is no address of Spark; write {scheme}://host:port")
    for place in places:
        host, _, port = place.rpartition(":") if ":" in place else (place, "", "")
        try:
            number = int(port or _PORTS[scheme])
            with socket.create_connection((host.strip("[]"), number), _REACH_SECONDS):
                return
        except ValueError as error:
            raise BadRequest(f"{url!r} is no address of Spark: {port!r} is no port") from error
        except OSError as error:
            last = error
    raise Unavailable(f"cannot reach Spark at {url}: {last.strerror or last}") from last


@contextmanager
def _sentences() -> Iterator[None]:
    """Make one sentence of what Spark says in a hundred lines."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if ours := _OURS.findall(text):  # raised in a task
            raise BadData(ours[-1]) from error
        told = _RAISED.findall(text) or text.strip().splitlines() or [type(error).__name__]
        raise BadData(f"Spark failed: {told[0]:.500}") from error


class SparkEngine:
    """Each part is a task; it answers with its facts as a line of JSON."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, part: Part, parts: int, told: Told = quiet) -> list[Facts]:
        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    answer = json.dumps([number, part(number)])
                    yield pa.RecordBatch.from_pydict({"facts": [answer]})

        found: list[Facts] = []
        # Some waves of tasks, as the tasks of one job tell nothing before all of them are done.
        wave = max(_LEAST_WAVE, -(-parts // _WAVES))
        for first in range(0, parts, wave):
            last = min(first + wave, parts)
            tasks = self._spark.range(first, last, 1, last - first).mapInArrow(work, "facts string")
            numbered = [json.loads(row["facts"]) for row in tasks.collect()]
            found += [facts for _, facts in sorted(numbered, key=lambda pair: pair[0])]
            told(last, parts)
        return found
