"""Draws docs/architecture.svg from the real imports; with --check, says whether the drawing still shows them.

Rooms stand in a column by rank. On the left an arc for every import between two rooms: strong where no way over other
rooms implies it, faint where one does, dashed where it goes against the ranks. On the right the way of a round.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from html import escape
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from helpers.rooms import LEVELS, RANK, SOURCE, edges  # noqa: E402

DRAWING = HERE / "architecture.svg"

WORDS = {
    "cli": "the command fedchord, one file a group of commands",
    "thesis": "studies as TOML, figures, the thesis' numbers",
    "remote": "the same run on several machines",
    "export": "a model that leaves, with all it needs",
    "report": "tables, comparisons, plots: what people look at",
    "experiments": "a run as a record: settings, folder, summary, study",
    "testing": "what every method must do, as tests",
    "synthetic": "sets of samples: learn from them, judge them",
    "evaluation": "what a client would deploy, and how good it is",
    "engine": "trains: simulate, executors, memory, checkpoints",
    "catalog": "the methods by name",
    "attacks": "what hostile clients do",
    "clients": "client rules: what one client does in a round",
    "data": "federations, splits, files, official sources",
    "models": "plain torch modules, their last layer called head",
    "mixing": "mixing rules: how much each client counts",
    "servers": "server rules: what becomes of the mixed update",
    "privacy": "noise that hides clients or rows, and what it costs",
    "core": "what a round is: rules, task, local training, round",
    "metrics": "what is measured, over rows and over clients",
    "confusion": "right and wrong answers by class",
    "regression": "how wrong predicted numbers are",
    "tensors": "flat vectors, ragged rows, the one mean",
    "plugins": "code that is not ours",
    "rng": "random numbers as functions of a key",
    "check": "the wording of all mistakes",
    "files": "writing whole or not at all",
    "safe": "text and archives within limits",
    "notebook": "tables and pictures as HTML",
    "paths": "where data files are looked for",
}

ROUND = [
    ("experiments", "run", "run"),
    ("engine", "rounds_of", "rounds_of"),
    ("core", "open_round", "open_round"),
    ("engine", "run", "executor.run"),
    ("core", "local_round", "local_round"),
    ("data", "batch", "batch"),
    ("clients", "step", "step, finish"),
    ("core", "close_round", "close_round"),
    ("mixing", "weigh", "weigh"),
    ("servers", "step", "step"),
    ("evaluation", "evaluate", "evaluate"),
    ("experiments", "run", "keep"),
]
"""The way of a round: room, a function of it, and what the drawing calls the station. docs/architecture.md explains."""

ROOMS = [name for names in reversed(LEVELS) for name in reversed(names) if not name.startswith("_")]
LEFT, WIDE, TALL, PITCH, TOP, STATION = 270, 322, 38, 46, 58, 58
WIDTH = LEFT + WIDE + 40 + STATION * len(ROUND) + 10
HEIGHT = TOP + PITCH * len(ROOMS) + 44

STYLE = """
  :root { --paper: #ffffff; --band: #f3f5f8; --ink: #1b2430; --soft: #5b6675; --box: #ffffff; --line: #9aa7b8;
          --arc: #2f6fb3; --faint: #2f6fb3; --way: #b3541e; --wrong: #c62828; --in: #ffffff }
  @media (prefers-color-scheme: dark) {
    :root { --paper: #11161d; --band: #19202a; --ink: #e8edf3; --soft: #9fabba; --box: #1f2833; --line: #55647a;
            --arc: #7fb4ea; --faint: #7fb4ea; --way: #f2a06b; --wrong: #ff7b72; --in: #11161d } }
  text { font-family: system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: var(--ink) }
  .paper { fill: var(--paper) } .band { fill: var(--band) }
  .box { fill: var(--box); stroke: var(--line); stroke-width: 1.2 }
  .name { font-size: 14px; font-weight: 600 } .words, .size { font-size: 11px; fill: var(--soft) }
  .size, .rank { text-anchor: end } .rank { font-size: 11px; fill: var(--soft) }
  .head { font-size: 13px; font-weight: 600; fill: var(--soft) }
  .edge { fill: none; stroke: var(--arc); stroke-width: 1.5 }
  .implied { stroke: var(--faint); stroke-width: 1; stroke-opacity: .28 }
  .wrong { stroke: var(--wrong); stroke-width: 1.6; stroke-dasharray: 5 3 }
  .tip { fill: var(--arc) } .way { fill: none; stroke: var(--way); stroke-width: 1.8 }
  .stop { fill: var(--way) } .number { font-size: 11px; font-weight: 700; text-anchor: middle; fill: var(--in) }
  .called { font-size: 11px; text-anchor: middle; font-family: ui-monospace, Menlo, Consolas, monospace }
  .left { text-anchor: end }
"""


def code_lines(path: Path) -> int:
    """Lines with code on them: no blank ones, comments or docstrings."""
    text = path.read_text()
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in empty:
            found |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def files(room: str) -> list[Path]:
    folder = SOURCE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def implied(edge: tuple[str, str], known: set[tuple[str, str]]) -> bool:
    """Whether a way over other rooms, down the ranks, leads along an edge, too."""
    start, end = edge
    known = {(room, other) for room, other in known if RANK[other] < RANK[room]}
    seen, todo = set(), [other for room, other in known if room == start and other != end]
    while todo:
        here = todo.pop()
        if here == end:
            return True
        if here not in seen and here != start:
            seen.add(here)
            todo += [other for room, other in known if room == here]
    return False


def middle(room: str) -> float:
    return TOP + PITCH * ROOMS.index(room) + PITCH / 2


def bands() -> list[str]:
    """Every second rank on a ground of its own, with its number."""
    drawn = []
    for rank, names in enumerate(LEVELS):
        rows = [middle(name) for name in names if name in ROOMS]
        if rows and rank % 2 == 0:
            high, size = min(rows) - PITCH / 2, PITCH * len(rows)
            drawn.append(f'<rect class="band" x="0" y="{high:g}" width="{WIDTH}" height="{size:g}"/>')
        if rows:
            drawn.append(f'<text class="rank" x="{WIDTH - 8}" y="{max(rows) + 18:g}">rank {rank}</text>')
    return drawn


def box(room: str) -> list[str]:
    y, paths = middle(room) - TALL / 2, files(room)
    lines = sum(code_lines(path) for path in paths)
    size = f"{lines:,} lines" + (f", {len(paths)} files" if len(paths) > 1 else "")
    return [
        f'<g class="room" data-room="{room}">',
        f'<rect class="box" x="{LEFT}" y="{y:g}" width="{WIDE}" height="{TALL}" rx="7"/>',
        f'<text class="name" x="{LEFT + 11}" y="{y + 16:g}">{room}</text>',
        f'<text class="size" x="{LEFT + WIDE - 11}" y="{y + 16:g}">{size}</text>',
        f'<text class="words" x="{LEFT + 11}" y="{y + 31:g}">{escape(WORDS[room])}</text>',
        "</g>",
    ]


def arc(edge: tuple[str, str], known: set[tuple[str, str]]) -> str:
    """An import: out of the upper half of the one room, into the lower half of the other."""
    start, end = edge
    a, b = middle(start) - 7, middle(end) + 7
    depth = 16 + (LEFT - 40) * abs(b - a) / (PITCH * len(ROOMS))
    kind = "wrong" if RANK[end] >= RANK[start] else "implied" if implied(edge, known) else "direct"
    bend = LEFT - depth * 4 / 3
    return (
        f'<path class="edge {kind}" data-from="{start}" data-to="{end}" '
        f'd="M{LEFT} {a:g} C{bend:.0f} {a:g} {bend:.0f} {b:g} {LEFT - 6} {b:g}"/>'
    )


def tip(room: str) -> str:
    y = middle(room) + 7
    return f'<path class="tip" d="M{LEFT} {y:g} l-8 -4 v8 z"/>'


def way() -> list[str]:
    """The stations of a round, time going right; the label stands where no line comes in."""
    places = [(LEFT + WIDE + 46 + STATION * k, middle(room)) for k, (room, _, _) in enumerate(ROUND)]
    drawn = []
    for (x, y), (to, down) in pairwise(places):
        short = 12 if down > y else -12
        drawn.append(
            f'<path class="way" marker-end="url(#head)" d="M{x} {y:g} Q{to} {y:g} {to} {down - short * 1.4:g}"/>'
        )
    for k, ((x, y), (_, _, called)) in enumerate(zip(places, ROUND, strict=True)):
        before, after = (places[n][1] if 0 <= n < len(places) else y for n in (k - 1, k + 1))
        through = (before < y < after) or (before > y > after)  # the line out would run through a label in the middle
        place = f'x="{x + 12 * through}" y="{y + (22 if before < y else -15):g}"'
        drawn += [
            f'<circle class="stop" cx="{x}" cy="{y:g}" r="10.5"/>',
            f'<text class="number" x="{x}" y="{y + 4:g}">{k + 1}</text>',
            f'<text class="called{" left" * through}" {place}>{called}</text>',
        ]
    return drawn


def draw() -> str:
    known = {edge for edge in edges() if set(edge) <= set(ROOMS)}
    faint_first = sorted(known, key=lambda edge: (not implied(edge, known), edge))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        "<title>The rooms of fedchord, their imports, and the way of a round</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path class="stop" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        *bands(),
        f'<text class="head" x="24" y="34">imports go down</text><text class="head" x="{LEFT}" y="34">rooms</text>',
        f'<text class="head" x="{LEFT + WIDE + 36}" y="34">the way of a round</text>',
        *(arc(edge, known) for edge in faint_first),
        *(tip(room) for room in ROOMS if any(room == end for _, end in known)),
        *(line for room in ROOMS for line in box(room)),
        *way(),
        f'<text class="words" x="24" y="{HEIGHT - 16}">An arc is an import; faint: implied by others. '
        "Lines are code lines, without blank ones, comments and docstrings.</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def differences(text: str) -> list[str]:
    """What the drawing shows and the code does not have, and the other way round."""
    root = ElementTree.fromstring(text)
    known = {edge for edge in edges() if set(edge) <= set(ROOMS)}
    shown = {(node.get("data-from"), node.get("data-to")) for node in root.iter() if node.get("data-from")}
    rooms = {node.get("data-room") for node in root.iter() if node.get("data-room")}
    found = [f"{a} imports {b}, and it is not drawn" for a, b in known - shown]
    found += [f"{a} imports {b} in the drawing alone" for a, b in shown - known]
    found += [f"the room {room} is drawn or there, but not both" for room in rooms ^ set(ROOMS)]
    found += [f"the way of a round: {room} has no {name}" for room, name, _ in ROUND if not _defines(room, name)]
    return sorted(found)


def _defines(room: str, function: str) -> bool:
    return any(re.search(rf"^ *def {function}\(", path.read_text(), re.MULTILINE) for path in files(room))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        wrong = differences(DRAWING.read_text())
        sys.exit("\n".join([*wrong, "draw it anew: make architecture"]) if wrong else 0)
    DRAWING.write_text(draw())
    print(f"wrote {DRAWING.relative_to(HERE.parent)}")
