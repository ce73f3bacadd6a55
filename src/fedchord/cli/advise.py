"""The command `advise`: short runs that say what a long one is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedchord.cli.printing import aside, show, tell

TABLE, PICTURE = "advice.csv", "advice.png"
MOST_SEEDS = 100


def advise(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE.toml] [key=value ...]", show_default=False)
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="How many seeds each pilot has.")] = 3,
    out: Annotated[Path, typer.Option("--out", help="The folder for the table and the picture.")] = Path("advice"),
) -> None:
    """Say what to do with some data: federate at all, own models or one, fair weights or not, how many rounds.

    \b
      fedchord advise                                       on digits
      fedchord advise data=wards.csv data.label=outcome data.client=ward
      fedchord advise data=mnist split=dirichlet split.alpha=0.1 clients=50 rounds=30 --seeds 5

    Eight short runs for each seed (clients alone, FedAvg, all rows in one place, fine-tuned, chosen together, equal
    weights, q-FedAvg, AAggFF), measured on rows cut from the training rows: validation and test rows are not touched.
    Every answer has an interval over seeds and clients; where it holds zero, the answer is "cannot tell".

    Keys are those of fedchord run, without method, mixing and server; rounds are those of a pilot.
    """
    from fedchord.check import require, whole
    from fedchord.cli.run import read_settings
    from fedchord.data.describe import describe
    from fedchord.experiments import pilot
    from fedchord.files import blocked, write_text
    from fedchord.report import advice, formats

    whole("advise", "--seeds", seeds, 2, MOST_SEEDS)
    reason = f"{out} is a file" if out.is_file() else blocked(out)
    require(not reason, "advise", f"{out / TABLE} cannot be written ({reason})")
    base = read_settings(settings or [])
    numbers = range(base.seed, base.seed + seeds)
    federations = {seed: base.with_values(seed=seed).federation() for seed in numbers}
    rows = pilot.pilots(base, min(one.num_clients for one in federations.values()))
    for line in advice.differences(describe(federations[base.seed], base.seed)):
        tell(line)
    found = list(pilot.fly(rows, {seed: pilot.cut(one, seed) for seed, one in federations.items()}, aside))
    table = advice.tabulate(found)
    show(table)
    made = advice.advise(found, base, settings or [])
    for line in (*made.sentences, made.cost, "The full run:", f"  {made.command}"):
        tell(line)
    write_text(out / TABLE, formats.render(table, "csv"))
    advice.draw(found, out / PICTURE)
    tell(f"wrote {out / TABLE} and {out / PICTURE}")
