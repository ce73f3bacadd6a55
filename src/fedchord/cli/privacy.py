"""The commands `privacy ...`: what methods release, an audit of a claim, and an attack on witness energies.

Heavy imports stay inside the functions, so that `--help` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

Settings = Annotated[list[str] | None, typer.Argument(metavar="[key=value ...]", help="Settings, as for fedchord run.")]


def register(app: typer.Typer) -> None:
    """Add `privacy` to the command line."""
    group = typer.Typer(
        rich_markup_mode=None,
        no_args_is_help=True,
        help="Differential privacy: what methods release, what noise costs, audits and attacks.",
    )
    group.command("list")(list_methods)
    group.command("cost")(cost)
    group.command("audit")(audit)
    group.command("reconstruct")(reconstruct)
    app.add_typer(group, name="privacy")


def list_methods(
    method: Annotated[str | None, typer.Argument(metavar="[METHOD]", help="One method, with reasons.")] = None,
) -> None:
    """List what each method releases, whether clients or rows can be hidden, and whether sums are all a server needs.

    It follows from what the rules say of themselves (sends, needs, equal, gradients). "mixing=uniform": with that key.
    Under "sums", two phases means that losses go first, and then updates that every client has weighed itself: what
    secure aggregation can do.

    \b
      fedchord privacy list
      fedchord privacy list q-fedavg
    """
    from fedchord import catalog
    from fedchord.privacy.allowed import LEVELS, hides, refused, released, summed

    if method is not None:
        algorithm = catalog.build(method)
        typer.echo(f"{method} releases {', '.join(released(algorithm)) or 'nothing'}")
        for level in LEVELS:
            typer.echo(f"privacy={level}: {refused(algorithm, level) or 'yes'}")
        typer.echo(f"sums alone: {summed(algorithm)}")
        return
    uniform = catalog.MIXINGS["uniform"]()
    rows: list[tuple[str, ...]] = [("method", "clients", "rows", "sums", "releases")]
    for name in catalog.METHODS:
        algorithm = catalog.build(name)
        told = (hides(algorithm, level, uniform) for level in LEVELS)
        rows.append((name, *told, summed(algorithm).partition(":")[0], ", ".join(released(algorithm)) or "nothing"))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        typer.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def cost(
    pairs: Settings = None,
    clients: Annotated[int, typer.Option(help="The number of clients.")] = 500,
) -> None:
    """Say what rounds of privacy=clients cost, or which noise an epsilon needs, without running them.

    \b
      fedchord privacy cost rounds=60 cohort=100 privacy.epsilon=8 privacy.delta=1e-4
      fedchord privacy cost rounds=60 cohort=100 privacy.noise=1.2 privacy.sampling=poisson
    """
    from fedchord.privacy.accounting import WORDS

    config, terms = _settings(pairs or [], clients)
    plan = config.plan()
    spending = terms.of_clients(clients, plan.size(clients), plan.rounds)
    typer.echo(f"noise {spending.noise:.4g} x clip, epsilon {spending.after(plan.rounds):.4g} at delta {terms.delta:g}")
    typer.echo(WORDS[spending.draw.way])


def _settings(pairs: list[str], clients: int):  # type: ignore[no-untyped-def]
    """The settings of a run of equal weights with privacy of clients unless another is said, and its privacy."""
    from fedchord.experiments.config import RunConfig

    base = {
        "method": "uniform",
        "privacy": "clients",
        "data": "digits",
        "clients": clients,
        "cohort": "all",
        "batch": 0,
    }
    config = RunConfig.from_pairs(pairs, base)
    return config, config.private()


def audit(
    pairs: Settings = None,
    clients: Annotated[int, typer.Option(help="The number of clients.")] = 10,
    rows: Annotated[int, typer.Option(help="For privacy=rows: a client's rows besides the canary.")] = 20,
    games: Annotated[int, typer.Option(help="How often the game is played, with and without the canary.")] = 1000,
    seed: Annotated[int, typer.Option(help="The seed of the first game.")] = 0,
) -> None:
    """Try to disprove a claimed epsilon: a canary is looked for in what many short runs release.

    With privacy=clients (unless another is said) the canary is a client, looked for in broadcasts; with privacy=rows it
    is a row, looked for in the uploads of its client, which reads all rows at every step unless batch is given. Of
    fedevg-witness the sums of features and the counts are looked at, from which uploads are made.

    \b
      fedchord privacy audit rounds=3 privacy.noise=2
      fedchord privacy audit rounds=3 privacy.noise=0     no noise: what the game can show at most
      fedchord privacy audit privacy=rows rounds=3 privacy.noise=2
      fedchord privacy audit privacy=rows method=fedevg-witness method.iterations=0 rounds=3 privacy.noise=2
    """
    from fedchord.core.task import Task
    from fedchord.models import LogisticRegression
    from fedchord.privacy.audit import audit_clients, audit_rows
    from fedchord.privacy.terms import ROWS

    config, terms = _settings(pairs or [], clients)
    plan, algorithm = config.plan(), config.algorithm()
    if terms.level == ROWS:
        found = audit_rows(algorithm, terms, rows, plan.rounds, games, seed, config.training())
    else:
        task, size = Task(lambda: LogisticRegression(inputs=4, classes=2)), plan.size(clients)
        found = audit_clients(algorithm, task, terms, clients, size, plan.rounds, games, seed)
    typer.echo(f"{games} games with the canary and {games} without, {100 * found.right:.1f} % guessed right")
    typer.echo(
        f"epsilon is at least {found.lower:.3f} (95 %); the claim is {found.claimed:.3f} at delta {terms.delta:g}"
    )
    typer.echo("the claim stands" if found.holds else "THE CLAIM IS WRONG")
    if not found.holds:
        raise typer.Exit(1)


def reconstruct(
    pairs: Settings = None,
    rounds: Annotated[int, typer.Option(help="Rounds whose uploads the attacker has seen.")] = 5,
    steps: Annotated[int, typer.Option(help="Steps of the search for a row.")] = 500,
) -> None:
    """Attack fedevg-witness: search the row behind the mean features of the smallest class that any client has sent.

    \b
      fedchord privacy reconstruct data=digits split=dirichlet split.alpha=0.1 clients=10
      fedchord privacy reconstruct split=dirichlet split.alpha=0.1 clients=10 method.min_rows=5
    """
    from fedchord.experiments.config import RunConfig
    from fedchord.experiments.parts import Parts
    from fedchord.synthetic.reconstruct import attack

    base = {"method": "fedevg-witness", "cohort": "all", "method.iterations": 0, "executor": "serial"}
    found = attack(Parts.build(RunConfig.from_pairs(pairs or [], base)).work, rounds, steps)
    typer.echo(f"client {found.client}, class {found.label}: {found.rows} row{'s' * (found.rows != 1)}")
    if found.distance is None:
        typer.echo("nothing of this class was sent")
        return
    typer.echo(f"mean features found with a relative error of {found.features:.3g}")
    typer.echo(f"the row that was found is {found.distance:.3f} from the nearest row of the class at that client;")
    typer.echo(f"another row of the class is {found.usual:.3f} from it (medians of root mean squares, range 0 to 1)")
