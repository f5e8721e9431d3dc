"""The data pipeline: worlds, traces, and cache joins at scale.

`graph`, `trace`, `newp` and `files` define the data with numpy and pyarrow alone; the modules that
import Spark run the same definitions on many cores. docs/pipeline.md tells how to use it.
"""
