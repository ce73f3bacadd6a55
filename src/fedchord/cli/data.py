"""The commands `data list`, `check`, `get`, `show`, `table` and `caches`.

Heavy imports stay inside the functions, so that `--help` is quick. Mistakes are raised as `FedchordError`; `cli.main`
prints them in one line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedchord.data import Source

SETTINGS = {"ignore_unknown_options": True}  # so that --clients 5 is answered with how to write it
Name = Annotated[str, typer.Argument(metavar="NAME", help="A data set, such as mnist (see data list).")]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Data sets; by default all.", show_default=False)
]
Root = Annotated[Path | None, typer.Option("--root", help="The folder of the data sets; by default FEDCHORD_DATA.")]


def register(app: typer.Typer) -> None:
    """Add `data` and its commands to the command line."""
    data = typer.Typer(
        rich_markup_mode=None,
        invoke_without_command=True,
        help="Data sets: which are here, whether they are the originals, how to get them, what they hold.",
    )
    data.callback()(data_root_command)
    data.command("list")(list_data)
    data.command("check")(check)
    data.command("get")(get)
    data.command("show", context_settings=SETTINGS)(show)
    data.command("table")(table)
    data.command("caches")(caches)
    app.add_typer(data, name="data")


def data_root_command(context: typer.Context) -> None:
    """Data sets: which are here, whether they are the originals, how to get them, what they hold.

    \b
      fedchord data list              which are here, and where to get the others
      fedchord data get mnist         download, with checksums
      fedchord data check mnist       are these the official files?
      fedchord data show mnist        clients, rows and a picture, beside the thesis
      fedchord data table             all of them beside the thesis
    """
    if context.invoked_subcommand is None:
        list_data()


def list_data(root: Root = None) -> None:
    """Which data sets are here, and where to get the others."""
    from fedchord.report.show import show_data

    show_data(_root(root))


def check(
    names: Names = None,
    files: Annotated[bool, typer.Option("--files", help="Look at the files only; do not count the rows.")] = False,
    root: Root = None,
) -> None:
    """Are these the official files? Sizes, checksums and counts; subsets and re-encoded copies are named.

    Without a name, every data set is checked of which a file is here. Where a file is missing or damaged, the exit code
    is 2.

    \b
      fedchord data check mnist cifar10
      fedchord data check --files
    """
    from fedchord.thesis.data_table import Entry, entry, way_to_get

    place, bad = _root(root), False
    asked = _sources(names or [])
    chosen = asked if names else [one for one in asked if len(one.missing(place)) < len(one.files)]
    if not chosen:
        typer.echo(f"there is no file of a data set in {place}")
    for number, source in enumerate(chosen):
        found: Entry = entry(source, place, read=not files)
        typer.echo("\n" * (number > 0) + f"{source.name}: {source.title}")
        typer.echo(f"  licence {source.licence}; from {source.home}")
        for file in found.files:
            many = f", {file.count} files" if file.count > 1 else ""
            size = f" ({_size(file.size)}{many})" if file.count else ""
            typer.echo(f"  {file.place}{size}: {file.told}")
        if found.origin:
            typer.echo(f"  {found.origin}")
        typer.echo(f"  verdict: {found.told} ({found.word})")
        if found.word == "missing":
            typer.echo(f"  to get it: {way_to_get(source, place)}")
        bad = bad or found.word in ("missing", "damaged")
    if bad:
        raise typer.Exit(2)


def get(
    name: Name,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take away what is in the place of the new files.")
    ] = False,
    root: Root = None,
) -> None:
    """Download a data set and check its published checksums, or say how to get it where no command can.

    \b
      fedchord data get mnist
      fedchord data get cifar10 --replace      in place of a subset or a re-encoded copy
    """
    from fedchord.data.official.facts import FACTS, Facts
    from fedchord.data.official.fetch import get as fetch
    from fedchord.thesis.data_table import way_to_get

    (source,), place = _sources([name]), _root(root, new=True)
    facts = FACTS.get(name, Facts())
    typer.echo(f"{name}: {source.title}")
    typer.echo(f"  licence: {source.licence}")
    typer.echo(f"  home: {source.home}")
    if source.embedded:
        typer.echo("  it comes with fedchord; nothing is to be done")
        return
    if not facts.downloads:
        typer.echo(f"  it cannot be downloaded by a command: {way_to_get(source, place)}")
        raise typer.Exit(2)
    for line in fetch(name, facts.downloads, place, replace, facts):
        typer.echo(f"  {line}")
    missing = source.missing(place)
    if missing:
        typer.echo(f"  still missing: {', '.join(missing)}; see {source.home}; --replace fetches all of it anew")
        raise typer.Exit(2)
    typer.echo(f"  every expected file is in {place / source.folder}; fedchord data check {name} counts the rows")


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set, or a file or folder of your own.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings of a run: split, clients, seed, ...")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the split into this file (.png, .pdf, .svg).")] = None,
    samples: Annotated[Path | None, typer.Option(help="Draw examples into this file (.png, .pdf, .svg).")] = None,
    root: Root = None,
) -> None:
    """The clients of a data set: how many, with how many rows, beside the thesis; and a picture.

    Without settings, the clients are those of the thesis, or the data's own.

    \b
      fedchord data show qmnist --picture writers.png
      fedchord data show digits split=dirichlet split.alpha=0.1 clients=30 --picture split.png
      fedchord data show mnist --samples digits.png
    """
    from fedchord.check import unknown
    from fedchord.data import SOURCES
    from fedchord.experiments.own_data import is_own
    from fedchord.report.show import check_pictures, show_split
    from fedchord.thesis.data_table import federation_of, statistics_lines

    check_pictures(picture, samples)
    _root(root)
    if not is_own(name) and name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    place = [] if root is None or is_own(name) else [f"data.root={root}"]
    made = federation_of(name, [*place, *(settings or [])])
    for line in statistics_lines(name, made):
        typer.echo(line)
    show_split(made, picture, samples)


def table(
    names: Names = None,
    form: Annotated[str, typer.Option("--format", help="rich, markdown, latex or csv.")] = "rich",
    root: Root = None,
) -> None:
    """Every data set: is it here, its clients, rows, mean and std beside the thesis, and why they differ.

    Data sets that are here are read, which takes a while for the large ones.

    \b
      fedchord data table
      fedchord data table berka heart --format markdown
    """
    from fedchord.check import one_of
    from fedchord.cli.printing import show as show_table
    from fedchord.report.formats import FORMATS
    from fedchord.thesis import data_table

    one_of("data table", "format", form, FORMATS)
    show_table(data_table.table(_root(root), [source.name for source in _sources(names or [])]), form)


def caches(
    clean: Annotated[bool, typer.Option("--clean", help="Delete those that nothing can use any more.")] = False,
    root: Root = None,
) -> None:
    """The caches of data sets of many files, and which of them are stale because the files were changed or are gone."""
    from fedchord.data.formats import cache

    place = _root(root)
    found = cache.caches(place)
    if not found:
        typer.echo("no caches")
    gone = {one.folder for one in cache.clean(place)} if clean else set()
    for one in found:
        typer.echo(f"{one.folder}: {_size(one.size)}, {one.state}{', deleted' if one.folder in gone else ''}")
    if not clean and any(one.state in cache.USELESS for one in found):
        typer.echo("--clean deletes those that are stale, damaged or left over")


def _root(root: Path | None, new: bool = False) -> Path:
    """The folder of the data sets; one that is named must be there, unless it is to be made."""
    from fedchord.check import require
    from fedchord.paths import data_root, expanded

    if root is None:
        return data_root()
    place = expanded(root)
    require(place.is_dir() or (new and not place.exists()), "data", f"--root {root} is no folder")
    return place


def _sources(names: list[str]) -> list[Source]:
    from fedchord.check import unknown
    from fedchord.data import SOURCES

    for name in names:
        if name not in SOURCES:
            raise unknown("data set", name, SOURCES)
    return [SOURCES[name] for name in names or SOURCES]


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
