"""One Spark session for all tests of the pipeline, small and quick to start."""

import os

import pytest

from pequod.pipeline.spark import Session

SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # a third of the time to make a plan
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark():
    before = dict(os.environ)
    with Session(master="local[2]", memory="1g", settings=SMALL).open() as session:
        yield session
    os.environ.clear()
    os.environ.update(before)
