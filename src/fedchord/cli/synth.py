"""The commands `synth ...`: look at the synthetic set of a run, take it out, train on it, and measure it.

Heavy imports stay inside the functions, so that `--help` is quick.
"""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedchord.cli.synth_judge import judge

if TYPE_CHECKING:
    from torch import Tensor

    from fedchord.experiments.config import RunConfig
    from fedchord.synthetic.set import SyntheticSet
    from fedchord.synthetic.utility import Utilities

OWNER = "synth"

Runs = Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders, patterns, or folders of run folders.")]
Source = Annotated[Path, typer.Argument(metavar="RUN_or_FILE", help="The folder of a run, or an .npz file.")]
Pairs = Annotated[
    list[str] | None, typer.Argument(metavar="[key=value ...]", help="For a file: the data to measure with.")
]


def register(app: typer.Typer) -> None:
    """Add `synth` to the command line."""
    synth = typer.Typer(
        rich_markup_mode=None,
        no_args_is_help=True,
        help="Synthetic sets (fedevg, fedcgan, ...): look at them, take them out, train on them, measure them.",
    )
    for command in (show, export, train, judge, quality, privacy):
        synth.command(command.__name__)(command)
    app.add_typer(synth, name="synth")


def show(
    runs: Runs,
    to: Annotated[Path, typer.Option(help="The picture, .png.")] = Path("samples.png"),
    real: Annotated[bool, typer.Option(help="Real training rows beside them, as many of each class.")] = False,
    strip: Annotated[bool, typer.Option(help="Instead: one sample of each class over the rounds.")] = False,
    columns: Annotated[int, typer.Option(help="How many samples of each class.")] = 10,
) -> None:
    """Draw the samples of runs side by side; rows are classes.

    \b
      fedchord synth show runs/a
      fedchord synth show runs/disc/*alpha-1.00* --real --to grids.png
      fedchord synth show runs/a --strip --to strip.png
    """
    from fedchord.experiments.folder import RunFolder
    from fedchord.synthetic import look
    from fedchord.synthetic.quality import real_beside

    panels: dict[str, Any] = {}
    first = None
    for place, config, made in sets(runs):
        title = _title(config, panels)
        first = first or (config, made)
        over = RunFolder(place).read_snapshots() if strip else {}
        panels[title] = look.strip(over) if strip else look.grid(made, columns)
    if real and first is not None:
        panels = {"real": look.grid(real_beside(first[0].federation(), first[1]), columns)} | panels
    picture = look.sheet(panels) if len(panels) > 1 else next(iter(panels.values()))
    typer.echo(f"wrote {look.write(picture, to)}: {', '.join(panels)}")


def export(
    place: Source,
    to: Annotated[
        Path | None,
        typer.Option(help="FILE.npz, FILE.pt (tensors x and y), or a folder for PNG files.", show_default="pictures"),
    ] = None,
) -> None:
    """Write a synthetic set as one file, or as a folder of pictures, FOLDER/CLASS/NUMBER.png.

    In Python, fedchord.synthetic.set.load_set(RUN).dataset() is a torch Dataset.

    \b
      fedchord synth export runs/a --to digits.npz
      fedchord synth export runs/a --to pictures
    """
    from fedchord.check import fail
    from fedchord.synthetic.set import load_set, save, save_pictures

    made, target = load_set(place), to or Path("pictures")
    if target.suffix == ".npz":
        save(made, target)
    elif target.suffix == ".pt":
        _write(made.batch, target)
    elif target.suffix:
        raise fail(OWNER, f"the file must end in .npz or .pt, or be a folder, got {str(target)!r}")
    else:
        save_pictures(made, target)
    typer.echo(f"wrote {target}: {len(made.y)} samples, {made.spc} of each of {made.classes} classes")


def train(
    place: Source,
    pairs: Pairs = None,
    classifier: Annotated[str | None, typer.Option(help="The classifier; by default by the shape of the data.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps; by default as in the recipe.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the classifier and of the real samples.")] = 0,
    to: Annotated[Path | None, typer.Option(help="Write the classifier, .pt, as a plain state_dict.")] = None,
) -> None:
    """Train the fixed classifier on a synthetic set and measure it: clients' test rows, official test rows, bounds.

    For the set of a run the data are those of the run; for a file name them, as for fedchord run.

    \b
      fedchord synth train runs/a --to classifier.pt
      fedchord synth train digits.npz data=mnist split=iid clients=10 --classifier twocnn
    """
    from fedchord.synthetic.learn import Judge, judged
    from fedchord.synthetic.set import check_fits, load_set
    from fedchord.synthetic.utility import utilities

    made = load_set(place)
    judge = Judge(classifier, steps)
    config = _data(place, pairs or [])
    federation = None if config is None else config.federation()
    if federation is not None:
        check_fits(made, federation)
    if to is not None:
        learnt = judged(judge, made, seed)
        _write(learnt.task.state_dict(learnt.model["theta"], learnt.model["buffers"]), to)
    typer.echo(f"{judge.told(made.shape)}; seed {seed}")
    if federation is None:
        typer.echo("nothing was measured: name the data, for example data=mnist split=iid clients=10")
    else:
        _print_utility(utilities(judge, made, federation, seed))
    if to is not None:
        typer.echo(f"wrote {to}")


def quality(
    runs: Runs,
    features: Annotated[
        str, typer.Option(help="classifier (trained on real rows), inception:FILE or efficientnet-lite0.")
    ] = "classifier",
    rows: Annotated[int, typer.Option(help="At most so many real rows to compare with; 0: all.")] = 0,
) -> None:
    """Frechet distance and KID of synthetic sets to real test rows, with those of as many real samples beside.

    The distance is called FID with InceptionV3's weights only. Few samples make it large: read it beside the real row.

    \b
      fedchord synth quality runs/disc
      fedchord synth quality runs/a --features efficientnet-lite0 --rows 2000
      fedchord synth quality runs/a --features inception:pt_inception-2015-12-05-6726825d.pth
    """
    from fedchord.report.show import console, table
    from fedchord.synthetic.features import Extractor, check_features, extractor
    from fedchord.synthetic.quality import quality as distances

    check_features(features)
    known: dict[str, Extractor] = {}
    lines, heads, told = [], ["run"], ""
    for place, config, made in sets(runs):
        federation = config.federation()
        if config.data not in known:
            known[config.data] = extractor(features, federation)
        found = distances(made, federation, known[config.data], rows)
        heads = ["run", "samples", found.distance, "of real samples", "KID", "of real samples"]
        real, kid = found.real_frechet, found.real_kid
        lines.append(
            [
                *(Path(place).name, str(found.samples), f"{found.frechet:.4g}", f"{real[0]:.4g} ({real[1]:.2g})"),
                *(f"{found.kid:.4g}", f"{kid[0]:.2g} ({kid[1]:.2g})"),
            ]
        )
        told = f"features: {found.features}; against {found.reference}; of real samples: mean (std) over draws"
    console().print(table(heads, lines))
    console().print(told)


def privacy(runs: Runs) -> None:
    """Are samples copies of training rows, and do they tell who was there? A look, not a guarantee.

    \b
      fedchord synth privacy runs/a
    """
    from fedchord.report.sample_words import privacy_notes
    from fedchord.synthetic.privacy import look

    for place, config, made in sets(runs):
        typer.echo(f"{place} ({config.method}, seed {config.seed})")
        for line in privacy_notes(asdict(look(made, config.federation()))):
            typer.echo(f"  {line}")


def sets(runs: list[str]) -> list[tuple[Path, RunConfig, SyntheticSet]]:
    """The runs that have a set, their settings and sets; none at all is an error."""
    from fedchord.check import FedchordError
    from fedchord.experiments.folder import RunFolder
    from fedchord.experiments.reading import find
    from fedchord.synthetic.set import load_set

    found, problems = [], []
    for place in find(runs):
        try:
            found.append((place, RunFolder(place).read_config(), load_set(place)))
        except FedchordError as error:
            problems.append(str(error))
    if not found:
        raise FedchordError(problems[0] if problems else f"{OWNER}: no run folder here")
    for problem in problems:
        typer.echo(problem, err=True)
    return found


def _title(config: RunConfig, taken: dict[str, Any]) -> str:
    """The method, and what else is needed to tell runs apart."""
    alpha = "" if config.split_alpha is None else f" alpha {config.split_alpha:g}"
    names = [config.method, f"{config.method}{alpha}", f"{config.method}{alpha} seed {config.seed}"]
    return next((name for name in names if name not in taken), f"{names[-1]} ({len(taken) + 1})")


def _data(place: Path, pairs: list[str]) -> RunConfig | None:
    """The settings that name the data: those of the run, or the given ones."""
    from fedchord.check import require
    from fedchord.experiments.config import RunConfig
    from fedchord.experiments.folder import RunFolder

    if place.is_dir():
        require(not pairs, OWNER, f"the data are those of the run, got {' '.join(pairs)}")
        return RunFolder(place).read_config()
    named = any(pair.partition("=")[0].strip() == "cohort" for pair in pairs)
    return RunConfig.from_pairs(pairs if named else [*pairs, "cohort=all"]) if pairs else None


def _write(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors as a .pt file, in a new folder if need be."""
    import torch

    from fedchord.files import write_stream

    packed = io.BytesIO()  # torch itself does not tell why a disk takes no more
    torch.save(tensors, packed)
    write_stream(path, lambda stream: stream.write(packed.getbuffer()))


def _print_utility(found: Utilities) -> None:
    from fedchord.report.show import console, table

    official = found.synthetic.official is not None
    lines = []
    rows = {"synthetic": found.synthetic, "as many real samples": found.upper, "random labels": found.lower}
    rows |= {} if found.real is None else {"all real training rows": found.real}
    metrics = [name for name in ("auroc", "top1") if name in found.synthetic.clients]
    for title, one in rows.items():
        line = [title]
        for metric in metrics:
            line += [f"{one.clients[metric]:.4f}", f"{one.spread[metric]:.4f}"]
            line += [f"{one.official[metric]:.4f}"] if one.official is not None else []
        lines.append([*line, f"{one.loss:.4f}"])
    heads = ["trained on"]
    for metric in metrics:
        heads += [f"{metric}, clients' mean", "std", *(["official test rows"] if official else [])]
    console().print(table([*heads, "loss on its rows"], lines))
