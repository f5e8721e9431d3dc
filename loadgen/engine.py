"""The engine benchmark: speed against bare loops, growth with size, and memory per row.

Each part runs in a process of its own, so that none inherits another's heap.
"""

from dataclasses import dataclass

from loadgen.celebrity import measure_celebrity
from loadgen.memory import measure_churn, measure_memory
from loadgen.process import in_fresh_process
from loadgen.report import Findings
from loadgen.speed import measure_speed


@dataclass(frozen=True)
class Plan:
    """How much is measured; the defaults are the sizes that the limits are meant for."""

    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    rounds: int = 100
    celebrity_followers: int = 100_000
    celebrity_rounds: int = 9
    memory_users: int = 25_000
    churn_rows: int = 100_000
    churn_rounds: int = 50


QUICK = Plan(
    sizes=(10_000, 20_000, 40_000),
    rounds=10,
    celebrity_followers=4_000,
    celebrity_rounds=3,
    memory_users=1_000,
    churn_rows=10_000,
    churn_rounds=10,
)


def measure_engine(plan: Plan, seed: int) -> Findings:
    """Everything that the benchmark file `engine` holds."""
    findings = in_fresh_process(measure_speed, plan.sizes, plan.rounds, seed)
    findings.add(
        in_fresh_process(measure_celebrity, plan.celebrity_followers, plan.celebrity_rounds)
    )
    findings.add(measure_memory(plan.memory_users, seed))
    findings.add(measure_churn(plan.churn_rows, plan.churn_rounds, seed))
    return findings
