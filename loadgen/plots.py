"""The figures of the paper, drawn from benchmark files, with the paper's own numbers beside."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

File = dict[str, Any]  # a benchmark file, as it was read

INSTALL = "matplotlib is not installed: pip install 'pequod[plot]'"
# Figure 8 and 9 are drawn in the paper without numbers; these are the ones its text gives.
PAPER_CROSSOVER_FULL = 90  # percent active, from which on full materialization is faster
PAPER_CROSSOVER_VOTES = 90  # percent votes, from which on separate ranges are faster


def draw(file: File, path: Path) -> bool:
    """Draw the figure of a benchmark file; False if it has none."""
    figure_of = FIGURES.get(file["benchmark"])
    if figure_of is None:
        return False
    try:
        import matplotlib
    except ImportError as error:
        raise SystemExit(INSTALL) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    figure_of(file, axes)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


def _twip(file: File, axes: Any) -> None:
    results = file["results"]
    places = range(len(results))
    ratios = [result["runtime_ratio"] for result in results]
    paper = [result["paper_ratio"] or 0 for result in results]
    bars = axes.bar([at - 0.2 for at in places], ratios, 0.4, label="here")
    axes.bar([at + 0.2 for at in places], paper, 0.4, label="paper, Figure 7", color="lightgray")
    axes.bar_label(bars, [f"{ratio:.2f}" for ratio in ratios])
    axes.set_xticks(list(places), [result["system"].replace("-", "-\n") for result in results])
    axes.set_ylabel("runtime / Pequod's")
    axes.set_title(f"Twip, {file['facts']['users']:,} users, by {file['facts']['driver']}")
    axes.legend()


def _materialization(file: File, axes: Any) -> None:
    for strategy in dict.fromkeys(result["strategy"] for result in file["results"]):
        points = [
            (result["active_percent"], result["runtime_seconds"])
            for result in file["results"]
            if result["strategy"] == strategy
        ]
        axes.plot(*zip(*points), marker="o", label=strategy)
    axes.axvline(
        PAPER_CROSSOVER_FULL, color="lightgray", label="paper: full is faster from here on"
    )
    axes.set_yscale("log")
    axes.set_xlabel("active users, %")
    axes.set_ylabel("runtime, s")
    axes.set_title("Materialization (the paper's Figure 8)")
    axes.legend()


def _newp(file: File, axes: Any) -> None:
    for way in dict.fromkeys(result["way"] for result in file["results"]):
        rates = list(dict.fromkeys(result["vote_percent"] for result in file["results"]))
        speeds = [
            median(
                result["sessions_per_second"]
                for result in file["results"]
                if result["way"] == way and result["vote_percent"] == rate
            )
            for rate in rates
        ]
        axes.plot(rates, speeds, marker="o", label=way)
    axes.axvline(
        PAPER_CROSSOVER_VOTES, color="lightgray", label="paper: separate is faster from here"
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("vote rate, %")
    axes.set_ylabel("sessions/s")
    axes.set_title("Newp (the paper's Figure 9)")
    axes.legend()


def _ablations(file: File, axes: Any) -> None:
    results = [result for result in file["results"] if result["without"] != "nothing"]
    places = range(len(results))
    for at, (name, label, color) in enumerate(
        (
            ("time_ratio", "time, here", "tab:blue"),
            ("paper_time_ratio", "time, paper", "lightsteelblue"),
            ("memory_ratio", "memory, here", "tab:orange"),
            ("paper_memory_ratio", "memory, paper", "navajowhite"),
        )
    ):
        heights = [result[name] for result in results]
        axes.bar(
            [place + at * 0.2 - 0.3 for place in places], heights, 0.2, label=label, color=color
        )
    axes.axhline(1, color="gray", linewidth=0.8)
    axes.set_xticks(list(places), [f"without {result['without']}" for result in results])
    axes.set_ylabel("multiple of all on")
    axes.set_title("Taking out one optimization of section 4")
    axes.legend()


FIGURES: dict[str, Callable[[File, Any], None]] = {
    "twip": _twip,
    "twip_sockets": _twip,
    "materialization": _materialization,
    "newp": _newp,
    "ablations": _ablations,
}
