"""All benchmarks one after the other, their files and figures in one folder, and the report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from loadgen.report import progress

RUNS = {
    "twip": ("twip",),
    "twip_sockets": ("twip", "--driver", "sockets"),
    "newp": ("newp",),
    "materialization": ("materialization",),
    "ablations": ("ablations",),
    "rpc": ("rpc",),
    "engine": ("engine",),
}
DRAWN = ("twip", "twip_sockets", "newp", "materialization", "ablations")


def run_everything(out: Path, quick: bool, seed: int, run: Callable[[Sequence[str]], None]) -> None:
    """Run each benchmark by its own command line, so that its file tells how to repeat it."""
    out.mkdir(parents=True, exist_ok=True)
    begun = monotonic()
    for at, (name, command) in enumerate(RUNS.items(), 1):
        progress(f"{at} of {len(RUNS)}: {name}")
        arguments = [*command, "--seed", str(seed), "--json", str(out / f"{name}.json")]
        if quick:
            arguments.append("--quick")
        if name in DRAWN:
            arguments += ["--plot", str(out / f"{name}.png")]
        run(arguments)
        print()
    minutes = (monotonic() - begun) / 60
    progress(f"all done in {minutes:.1f} minutes; `python -m loadgen report` writes the document")
