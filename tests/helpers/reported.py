"""Small real runs for reports: two methods and two seeds, one that ends with samples, and clients with evil names."""

from __future__ import annotations

from pathlib import Path

from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute

SMALL = {"model": "logreg", "clients": 6, "cohort": 3, "rounds": 4, "executor": "serial", "eval_every": 1}
EVIL = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 2">',
    "a & b's </td></svg>",
    "$x_1$",
)


def two_methods(folder: Path) -> Path:
    """FedAvg and SuPerFed on six clients, seeds 1 and 2; lambda is swept, and chosen on validation rows."""
    more = {"validation": 0.2, "method.warmup": 0.25, "sweep.lambdas": "0,0.25,0.5,0.75,1"}
    for seed in (1, 2):
        for method, keys in (("fedavg", {"validation": 0.2}), ("superfed-mm", more)):
            out = str(folder / f"{method}-{seed}")
            execute(RunConfig.from_values(SMALL | keys | {"method": method, "seed": seed, "out": out}))
    return folder


def with_samples(folder: Path) -> Path:
    """A run that ends with samples."""
    keys = {"method": "fedevg", "clients": 4, "cohort": "all", "rounds": 1, "judge.steps": 10, "executor": "serial"}
    execute(RunConfig.from_values(keys | {"out": str(folder / "evg")}))
    return folder


def with_evil_names(folder: Path) -> Path:
    """Two methods on a table whose clients, classes and columns have markup for names, in folders named alike."""
    folder.mkdir(parents=True, exist_ok=True)
    quoted = ['"' + name.replace('"', '""') + '"' for name in EVIL]
    lines = [f"{(7 * row) % 5},{row % 3},<i>{row // 4 % 2}</i>,{quoted[row % 4]}" for row in range(80)]
    table = folder / "<b>rows.csv"
    table.write_text("\n".join(["<u>a,b,y,who", *lines]) + "\n")
    data = {"data": str(table), "data.label": "y", "data.client": "who", "cohort": 2, "rounds": 2, "eval_every": 1}
    for method in ("fedavg", "fedprox"):
        out = str(folder / "runs" / f"<em>{method}")
        execute(RunConfig.from_values(data | {"method": method, "executor": "serial", "out": out}))
    return folder / "runs"
