"""The command `rehearse`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedchord.experiments.round import Round
    from fedchord.remote.plan import Plan
    from fedchord.remote.rehearsal import Rehearsed


KEYS = ("weather.away", "weather.lost", "attack", "attack.share", "attack.scale")


def rehearse(
    file: Annotated[Path, typer.Argument(metavar="FED.toml", help="The federation's file on its server.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[weather.x=value attack=NAME ...]", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", help="The first so many rounds.", show_default="all", min=1)
    ] = None,
) -> None:
    """Play a federation's plan in this process before anyone deploys it, in any weather, with hostile parties.

    \b
      fedchord rehearse fed.toml
      fedchord rehearse fed.toml weather.lost=0.1 weather.away=0:2-4 --rounds 5
      fedchord rehearse fed.toml attack=sign-flip attack.share=0.2

    Every party is a node in this process with rows that are made up by the outline of the data: plan, model, rules,
    messages and checks are the real ones, accuracy is not. Attempts and the minimum of answers are those of the file.
    """
    from fedchord.attacks.attack import Attack
    from fedchord.check import fail, number
    from fedchord.data import outline
    from fedchord.engine.attendance import Terms
    from fedchord.engine.weather import Weather
    from fedchord.experiments.settings import parse_pairs
    from fedchord.remote.asking import Service
    from fedchord.remote.plan import Plan
    from fedchord.remote.rehearsal import rehearse as play
    from fedchord.remote.settings import read_fed

    fed, given = read_fed(file), parse_pairs(settings or [])
    for key in given:
        if key not in KEYS:
            raise fail("rehearse", f"takes {', '.join(KEYS)}, got {key}; the plan stands in {file}")
    scale = number("run", "attack.scale", given["attack.scale"]) if "attack.scale" in given else None
    share = number("run", "attack.share", given.get("attack.share", 0.2))
    attack = Attack(str(given["attack"]), share, scale) if "attack" in given else None
    plan, server = Plan.of(fed.plan, outline.load(fed.outline)), fed.server
    terms = Terms(server.attempts, server.minimum)
    away, lost = (_share(given.get(f"weather.{name}", 0.0)) for name in ("away", "lost"))
    weather = Weather(away, lost, terms) if away or lost else None
    print(f"{fed.name}: {plan.config.method}, {plan.clients} clients, {plan.course.rounds} rounds; made-up rows")
    found = play(plan, Service(server.deadline, 0.0, terms, server.phases), weather, rounds, attack, _tell)
    _close(plan, found)
    if found.problem:
        raise typer.Exit(1)


def _share(value: object) -> float | str:
    return value if isinstance(value, str) else float(value)  # type: ignore[arg-type]


def _tell(done: Round) -> None:
    causes = ", ".join(f"client {client} {cause}" for client, cause in done.missing.items())
    asked = len(done.cohort) + len(done.missing)
    print(f"round {done.round}: {len(done.cohort)} of {asked} answered{f' ({causes})' if causes else ''}")


def _close(plan: Plan, found: Rehearsed) -> None:
    if found.rounds:
        up, down = (sum(getattr(done, f"bytes_{way}") for done in found.rounds) for way in ("up", "down"))
        came = sum(len(done.cohort) for done in found.rounds)
        asked = came + sum(len(done.missing) for done in found.rounds)
        print(f"a client receives {down / asked:,.0f} bytes a round and sends {up / came:,.0f}")
    told = ", ".join(f"{cause} {number}" for cause, number in found.missing.items())
    print(f"missing: {told or 'nobody'}")
    print(f"it would end there: {found.problem}" if found.problem else f"all {len(found.rounds)} rounds were done")
