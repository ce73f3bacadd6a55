"""The commands `deploy init`, `add`, `facts`, `plan`, `check`, `renew` and `app`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SETTINGS = {"ignore_unknown_options": True}  # so that --rounds 5 is answered with how to write it
Pairs = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", show_default=False)]
FedFile = Annotated[Path, typer.Argument(metavar="FED.toml", help="The server's file.")]


def register(app: typer.Typer) -> None:
    """Add `deploy` and its commands to the command line."""
    deploy = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        help="A federation of several machines: its files, keys and services, and whether all is well.",
    )
    deploy.callback()(lambda: None)
    deploy.command("init", context_settings=SETTINGS)(init)
    deploy.command("add")(add)
    deploy.command("facts", context_settings=SETTINGS)(facts)
    deploy.command("plan")(plan)
    deploy.command("check")(check)
    deploy.command("renew")(renew)
    deploy.command("app")(app_folder)
    app.add_typer(deploy, name="deploy")


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make; it must be new or empty.")],
    settings: Pairs = None,
    nodes: Annotated[str, typer.Option(help="The parties' names, with commas.", show_default=False)] = "",
    host: Annotated[str, typer.Option(help="The name or address by which parties reach the server.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The server's port.")] = 9092,
    name: Annotated[str, typer.Option(help="The federation's name.", show_default="that of DIR")] = "",
    place: Annotated[str, typer.Option(help="Where machines keep program and folder.")] = "/srv/fedchord",
    command: Annotated[
        str, typer.Option(help="The program on these machines.", show_default="PLACE/venv/bin/fedchord")
    ] = "",
) -> None:
    """Write the folders of a new federation, one for each party: settings, keys, a service, a page.

    \b
      fedchord deploy init heart --nodes north,south,west data=rows.csv data.label=ill method=aaggff-s rounds=20
      fedchord deploy init heart --nodes north,south --host fed.example.org --port 443

    Settings are those of a run: what is about rows goes to the parties' files, all else to the plan. Nothing is
    overwritten. The page README.md in each folder is for whoever administers that machine.
    """
    from fedchord.remote.init import init as make

    names = [part.strip() for part in nodes.split(",") if part.strip()]
    made = make(folder, names, settings or [], host, port, name, place, command)
    print(f"wrote {folder}: ca, server, {', '.join(made.clients)}")
    print(f"keep {folder / 'ca'} offline; {folder / 'README.md'} says what goes where, and what comes next")


def add(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder that deploy init made, with server and parties.")
    ],
    node: Annotated[str, typer.Option(help="The new party's name.", show_default=False)],
) -> None:
    """Add a party to a federation: its folder, with a key of its own, and its place in fed.toml and nodes.toml.

    \b
      fedchord deploy add heart --node east

    It is the last client; those who are there keep their numbers and keys. Then everybody needs a new plan: the server
    runs deploy plan with the facts of all, the new party's among them, and has another out in fed.toml.
    """
    from fedchord.remote.adding import add as make

    made = make(folder, node)
    print(f"wrote {folder / node}; {folder / 'server'}: fed.toml and nodes.toml name {', '.join(made.clients)}")
    print(
        f"next: deploy facts {folder / node / 'node.toml'}, deploy plan with the facts of all, another out in fed.toml"
    )


def facts(
    files: Annotated[
        list[str], typer.Argument(metavar="NODE.toml... [KEY=VALUE]...", help="Parties' files; seed=, model=.")
    ],
    share: Annotated[
        str, typer.Option(help="What may be told that is read off rows: rows, ranges, target.", show_default="nothing")
    ] = "",
) -> None:
    """Write what a party's rows look like into facts.json beside its file, and show it: names, words, shapes, no row.

    \b
      fedchord deploy facts node.toml                       look at it; nothing is sent
      fedchord deploy facts node.toml --share rows          with the numbers of rows, which a plan needs
      fedchord deploy facts node.toml --share rows,ranges seed=1

    ranges (smallest and largest values) are needed by methods that make samples of tables, target (mean and spread of
    the numbers to predict) by regression; both with the seed of the plan, which says which rows are training rows.
    """
    from fedchord.check import require
    from fedchord.experiments.config import WORDS, check_key
    from fedchord.experiments.settings import parse_pairs
    from fedchord.remote.facts import FACTS, facts_of, lines
    from fedchord.remote.settings import read_party

    pairs = parse_pairs([text for text in files if "=" in text], WORDS)
    for key in pairs:
        check_key(key)
    paths = [Path(text) for text in files if "=" not in text]
    require(bool(paths), "deploy facts", "needs a party's file, such as node.toml")
    asked = [part.strip() for part in share.split(",") if part.strip()]
    for path in paths:
        party = read_party(path)
        found = facts_of(party, pairs, asked)
        found.save(party.folder / FACTS)
        print("\n".join([*lines(found), f"wrote {path.parent / FACTS}"]))


def plan(
    file: FedFile,
    facts: Annotated[list[Path], typer.Argument(metavar="FACTS...", help="The facts.json of every party.")],
) -> None:
    """Bring everybody's facts together: plan.json and the outline of the data, which all parties need alike.

    \b
      fedchord deploy plan server/fed.toml north.json south.json west.json
      fedchord deploy plan heart/server/fed.toml heart/*/facts.json      on one machine, and both files are copied

    Categories and classes are everybody's, in sorted order. What does not fit is refused with the names of the parties.
    """
    from fedchord.remote.agreed import make_plan
    from fedchord.remote.settings import read_fed

    for line in make_plan(read_fed(file), facts):
        print(line)


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.toml...", help="A server's or a party's file.")],
    offline: Annotated[bool, typer.Option("--offline", help="Do not try the server's address.")] = False,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Wait for a server that is starting.")] = 0.0,
) -> None:
    """Is everything in place? Files, permissions, clock, certificates, port, versions, plan, rows.

    Every finding is a line, and one that is wrong says what to do. The exit code is 0 only if all is well.

    \b
      fedchord deploy check fed.toml
      fedchord deploy check node.toml --offline     while the server is not there yet
      fedchord deploy check node.toml --wait 60     while it is starting
    """
    from fedchord.remote.checkup import check as look

    findings = [finding for path in files for finding in look(path, offline, wait=wait)]
    for finding in findings:
        print(f"{'ok   ' if finding.good else 'WRONG'} {finding.text}")
    wrong = sum(not finding.good for finding in findings)
    print("all is well" if not wrong else f"{wrong} of {len(findings)} findings are wrong")
    if wrong:
        raise typer.Exit(1)


def renew(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder that deploy init made, with ca and server.")
    ],
) -> None:
    """Make a new certificate for the server, with the key in DIR/ca; parties need nothing new."""
    from fedchord.remote.init import renew as make

    print(f"wrote {make(folder)} and its key; they replace those of the server, which then is started again")


def app_folder(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make; it must be new.")],
) -> None:
    """Write the federation as a Flower app, for people who run Flower already.

    \b
      fedchord deploy app heart-app
      flwr run heart-app CONNECTION --run-config 'federation="/srv/heart/fed.toml"'

    Every SuperNode is started with --node-config 'party="/srv/heart/node.toml"'. Under fedchord serve and join a round
    takes less time, since client processes live for the run.
    """
    from fedchord.remote.extra import need_flower

    need_flower("deploy app")
    from fedchord.remote.flower_app import write_app

    write_app(folder)
    print(f"wrote {folder}; flwr run {folder} starts it")
