"""The model card: README.md of an exported folder, written from its facts."""

from __future__ import annotations

from collections.abc import Sequence

from fedchord.export.facts import Facts
from fedchord.export.preprocessing import ROWS
from fedchord.report import words
from fedchord.report.show import newcomer_notes

SHOWN = 20
"""How many names are told."""
HEADS = {"mean": "mean", "std": "std", "worst10": "worst tenth", "best10": "best tenth"}
FILES = {
    "weights.safetensors": "the weights, a plain state_dict",
    "model.py": "the network: `build()` makes it with its arguments",
    "network.py": "a copy of the file that defines it",
    "encoder": "the encoder's config and vocabulary; its weights are in weights.safetensors",
    "model.onnx": "the network with its weights for ONNX",
    "predict.py": "predictions for a file of rows",
    "rows.py": "how a file is read and its rows made ready, as in training",
    "preprocessing.json": "the numbers for that: features, categories, means, stds, class names",
    "settings.toml": "the settings of the run (`fedchord run settings.toml out=FOLDER` runs it again)",
    "run.json": "the facts behind this page",
}
LOAD = """import model, safetensors.torch

network = model.build().eval()
network.load_state_dict(safetensors.torch.load_file("weights.safetensors"))"""


def card(facts: Facts, files: Sequence[str]) -> str:
    """The page."""
    tops = dict.fromkeys(name.partition("/")[0] for name in files)
    parts = [
        f"# {facts['run']['method']} on {facts['data']['name']}: {facts['whose']}",
        _opening(facts),
        _use(facts),
        "## Files\n\n" + "\n".join(f"- `{name}`: {FILES[name]}" for name in FILES if name in tops),
        "## Input\n\n" + _input(facts),
        "## Data\n\n" + _data(facts),
        "## Protocol\n\n" + _protocol(facts),
        "## Metrics\n\n" + _metrics(facts),
        "## Limits\n\n" + "\n".join(f"- {sentence}" for sentence in limits(facts)),
    ]
    return "\n\n".join(parts) + "\n"


def _opening(facts: Facts) -> str:
    model, data = facts["model"], facts["data"]
    answer = f"the number {data['target']!r}" if data["target"] else f"one of {len(data['classes'])} classes"
    named = f": {_names(data['classes'])}" if data["classes"] else ""
    what = f"A network of class {model['class']} with {model['parameters']:,} parameters that predicts {answer}{named}."
    return f"{what} It was trained by federated learning and written by fedchord {facts['versions']['fedchord']}."


def _use(facts: Facts) -> str:
    rows = ROWS[facts["data"]["kind"]]
    used = f"Needs Python 3.11 and {', '.join(facts['needs'])}; fedchord itself is not needed."
    if "fedchord" in facts["needs"]:
        used = f"Needs Python 3.11 and {', '.join(facts['needs'])}: the model's own file imports fedchord."
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    shell = f"```sh\npython predict.py {rows} > out.csv\n```"
    text = f"## Use\n\n{shell}\n\nThe network alone, in this folder:\n\n```python\n{LOAD}\n```\n\n{used}"
    return f"{text} Written with {versions}." + (f"\n\n{_onnx(facts)}" if facts.get("onnx") else "")


def _onnx(facts: Facts) -> str:
    found = facts["onnx"]
    first, second = found["outputs"]
    what = {"probabilities": "of the classes, in their order", "prediction": "in the units of the data"}[second]
    takes = facts["input"]["network"]
    shape = ", ".join(["rows", *map(str, takes["shape"])])
    return (
        f"`model.onnx` takes `x` ({takes['dtype']}, ({shape})), rows that are ready as under Input: preprocessing is "
        f"not in it. It gives `{first}`, as the network does, and `{second}` {what}. Run beside torch on batches of "
        f"{' and '.join(map(str, found['batches']))} rows; the largest difference was {found['difference']:.1e}."
    )


def _input(facts: Facts) -> str:
    told = facts["input"]
    kind, scaling = told["kind"], told["scaling"]
    lines = []
    if kind == "table":
        names = [
            f"{part['name']} ({len(part['categories'])} words)" if part["categories"] else part["name"]
            for part in told["features"]
        ]
        lines.append(f"A csv file with a header; {len(names)} columns are read: {_names(names)}.")
    elif kind == "texts":
        text = " and ".join(told["columns"]["text"])
        lines.append(f"A csv file with texts in {text}, cut into at most {told['length']} WordPiece tokens.")
    else:
        shape = ", ".join(map(str, told["x"]["shape"]))
        lines.append(f"Rows of shape ({shape}), {told['x']['dtype']}; the network takes {told['x']['becomes']}.")
    if kind == "pictures":
        lines.append("predict.py takes a folder of pictures too and squeezes them to this size.")
        shown = told["pictures"]
        lines += [f"The middle {shown['side']}x{shown['side']} pixels are used."] if shown["side"] else []
        lines += [f"Colours are scaled by mean {shown['mean']} and std {shown['std']}."] if shown["mean"] else []
    if scaling is not None:
        lines.append(f"Gaps become the mean and numbers are scaled to (x - mean) / std, by the {scaling['of']}.")
        if few := scaling["own_rows_from"]:
            lines.append(f"A client's rows in a file are scaled by themselves instead if there are {few} or more.")
    if told["target"] is not None:
        mean, std = told["target"]["mean"], told["target"]["std"]
        lines.append(f"The network's output times {std:.6g} plus {mean:.6g} is the prediction.")
    elif told["network"]["outputs"] == 1:
        lines.append(f"The sigmoid of the network's output is the probability of {told['classes'][1]}.")
    else:
        lines.append("The softmax of the network's outputs are the probabilities of the classes.")
    return " ".join(lines)


def _data(facts: Facts) -> str:
    data = facts["data"]
    rows = data["rows"]
    lines = [f"{data['name']}: {len(data['clients'])} clients ({_names(data['clients'])})."]
    if data["source"]:
        source = data["source"]
        lines = [f"{data['name']}: {source['title']}, licence {source['licence']}, {source['home']}.", *lines]
    counts = ", ".join(f"{count} {part}" for part, count in rows.items() if count)
    train = data["train"]
    spread = f"{train['smallest']} to {train['largest']} training rows a client, median {train['median']:g}"
    return "\n".join([*lines, f"Rows: {counts}; {spread}.", *([""] if data["notes"] else []), *_listed(data["notes"])])


def _protocol(facts: Facts) -> str:
    run, protocol = facts["run"], facts["protocol"]
    lines = [
        f"- Method: {run['rules']}.",
        f"- After round {run['round']} of {run['rounds']}; seed {run['seed']}; loss: {facts['model']['objective']}.",
        f"- What clients use: {run['deploys']}. This folder holds {facts['whose']}.",
    ]
    if protocol is not None:
        who = f"{protocol['evaluated']} of {protocol['clients']} clients on their own {protocol['split']} rows"
        lines.append(f"- Measured: {who}, each with {protocol['deploys']['words']}.")
        notes = [note for note in protocol["notes"] if note["kind"] != "data"]
        lines += _listed(words.sentences({**protocol, "notes": notes}, run["method"]))
    return "\n".join(lines)


def _metrics(facts: Facts) -> str:
    metrics, client = facts["metrics"], facts["client"]
    if metrics is None:
        return "The run is not finished, so there are none."
    own = client["metrics"] if client and client["metrics"] else None
    heads = ["metric", *HEADS.values(), *([f"client {client['name']}"] if own else [])]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for name, values in metrics.items():
        cells = [_number(values[column]) for column in HEADS] + ([_number(own[name])] if own else [])
        lines.append(f"| {' | '.join([name, *cells])} |")
    below = "Over clients, each counting the same; a tenth is one client at least."
    own_rows = f" Client {client['name']}: on its {client['rows']['test']} test rows." if own else ""
    return "\n".join([*lines, "", below + own_rows])


def limits(facts: Facts) -> list[str]:
    """What the facts say against relying on the model."""
    run, data, client = facts["run"], facts["data"], facts["client"]
    found = []
    if facts["protocol"] is None:
        found.append(f"The run has done {run['round']} of {run['rounds']} rounds, and nothing was measured.")
    if client is not None:
        took = f"took part in {client['rounds']} of {run['round']} rounds" if client["rounds"] else "was never sampled"
        rows = f"{client['rows']['train']} training and {client['rows']['test']} test rows"
        found.append(f"Client {client['name']} {took} and has {rows}.")
        found.append(f"Whether it serves anybody but client {client['name']} was not measured.")
    if data["split"] != "natural":
        found.append(f"The clients are not real ones: the rows were dealt to them (split {data['split']}).")
    if data["synthetic"]:
        found.append(f"Synthetic rows ({data['synthetic']}) were added to the clients' training rows.")
    found += _counts(facts)
    if client is None:
        found += _new_clients(facts)
    scaling = facts["input"]["scaling"]
    if scaling is not None and client is not None:
        found.append("preprocessing.json holds the mean and the std of the client's training rows, feature by feature.")
    found.append("One run with one seed: how far the numbers depend on the seed is not known.")
    found.append("Nothing was done against guessing training rows from the weights (no differential privacy).")
    return found


def _counts(facts: Facts) -> list[str]:
    """Clients that had little to say."""
    data, total = facts["data"], len(facts["data"]["clients"])
    found = []
    for part, what in (("train", "training"), ("test", "test")):
        few, below, least = data[part]["few"], data[part]["below"], data[part]["smallest"]
        if few:
            found.append(f"{few} of {total} clients have fewer than {below} {what} rows, the smallest {least}.")
    if data["never_sampled"]:
        found.append(f"{data['never_sampled']} of {total} clients were never sampled.")
    undefined = {name: values["undefined"] for name, values in (facts["metrics"] or {}).items() if values["undefined"]}
    for name, count in undefined.items():
        found.append(f"{name} is undefined for {count} of {total} clients, which are left out of its numbers.")
    return found


def _new_clients(facts: Facts) -> list[str]:
    """What is known about clients that were not there."""
    newcomers, scaling = facts["run"]["newcomers"], facts["input"]["scaling"]
    found = newcomer_notes(newcomers) or ["It was not measured on clients that had no part in training."]
    if scaling is not None:
        found.append(
            "The clients of the run were measured with means and stds of their own, which are not in this folder; a "
            "file's rows are scaled by themselves or by pooled ones, so predictions depend on which rows are together."
        )
    return found


def _listed(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def _names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(str, names[:SHOWN])) + rest


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
