"""What every benchmark here hands in: results, ratios with their limits, and the machine.

The file is `{"benchmark": ..., "machine": {...}, "results": [...], "ratios": {...}}`. Results
are the single measurements, one flat object each; ratios are the few numbers that are compared
from run to run and from machine to machine. `command` and `facts` tell how to repeat it and what
was measured, `limits` what ratios should be, `bases` what they were made of, and `spreads` the
least and the most of the turns of one run.
"""

import json
import os
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

Result = dict[str, object]
STDOUT = "-"


@dataclass(frozen=True)
class Ratio:
    """A measured number, the most or the least it may be, and in words what it was made of."""

    name: str
    value: float
    limit: float
    basis: str
    at_least: bool = False
    spread: tuple[float, float] | None = None  # the least and the most of the turns

    @property
    def verdict(self) -> str:
        if self.at_least:
            return "ok" if self.value >= self.limit else "under"
        return "ok" if self.value <= self.limit else "over"


@dataclass
class Findings:
    """What a benchmark, or a part of one, has measured."""

    results: list[Result] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)  # sizes, versions, how things are set up

    def add(self, other: "Findings") -> None:
        self.results += other.results
        self.ratios += other.ratios
        self.facts |= other.facts


def machine_facts() -> dict[str, object]:
    """The machine and interpreter that a number was measured on, and when."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        # Beyond the number of cores it tells that others worked on this machine, too.
        "load_average": round(os.getloadavg()[1], 2),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")  # platform.processor() is empty on most Linux systems
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def benchmark_file(benchmark: str, findings: Findings, command: str = "") -> dict[str, object]:
    """What the file of a benchmark holds."""
    return {
        "benchmark": benchmark,
        "machine": machine_facts(),
        "results": findings.results,
        "ratios": {ratio.name: round(ratio.value, 4) for ratio in findings.ratios},
        "command": f"python -m loadgen {command or benchmark}",
        "facts": findings.facts,
        "limits": {
            ratio.name: [">=" if ratio.at_least else "<=", ratio.limit] for ratio in findings.ratios
        },
        "bases": {ratio.name: ratio.basis for ratio in findings.ratios},
        "spreads": {
            ratio.name: [round(value, 4) for value in ratio.spread]
            for ratio in findings.ratios
            if ratio.spread is not None
        },
    }


def write_json(benchmark: str, findings: Findings, target: str, command: str = "") -> None:
    """Write the file to `target`, or to standard output if that is "-"."""
    text = json.dumps(benchmark_file(benchmark, findings, command), indent=2) + "\n"
    if target == STDOUT:
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, "utf-8")


def table(ratios: Iterable[Ratio]) -> str:
    """The ratios for a reader at a terminal.

    >>> print(table([Ratio("scan_fresh", 1.5, 2.5, "1.2 us, by hand 0.8 us")]))
    ratio       measured  limit
    scan_fresh      1.50    2.5  ok    1.2 us, by hand 0.8 us
    """
    lines = [("ratio", "measured", "limit", "", "")]
    for ratio in ratios:
        limit = f"{'>' if ratio.at_least else ''}{ratio.limit:g}"
        line = (ratio.name, f"{ratio.value:.2f}", limit, ratio.verdict, ratio.basis)
        lines.append(line)
    width = max(len(line[0]) for line in lines)
    return "\n".join(
        f"{name:{width}}  {value:>8}  {limit:>5}  {verdict:5} {basis}".rstrip()
        for name, value, limit, verdict, basis in lines
    )


def progress(message: str) -> None:
    """Tell the person who waits, on standard error, what goes on and since when."""
    print(f"{datetime.now():%H:%M:%S}  {message}", file=sys.stderr, flush=True)
