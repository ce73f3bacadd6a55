"""The settings of a run by what they are about: one record for each part of a run, with a default and a line of help.

`RunConfig` is all of them in one, so that a setting has one name: the field, in a TOML file, and as key=value (where it
may have a dot). A part that needs no other one builds what it describes.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any

from fedchord import check
from fedchord.attacks.attack import Attack
from fedchord.check import fail, require
from fedchord.core.round import Plan
from fedchord.core.training import Training
from fedchord.engine.attendance import Terms
from fedchord.engine.combine import TRIM
from fedchord.engine.compress import Compress
from fedchord.engine.guards import GROWN, Defence
from fedchord.engine.weather import Weather
from fedchord.evaluation.choice import EFFORTS, HELD, Chooser
from fedchord.evaluation.sweep import LAMBDAS
from fedchord.metrics import find
from fedchord.privacy.terms import Privacy
from fedchord.synthetic.learn import Judge

COHORT = 5
"""Clients in a round unless it is said how many."""


def key(default: Any, about: str, name: str = "") -> Any:
    """A field of a run: its default and one line of help; `name` where the key has a dot."""
    return field(default=default, metadata={"about": about, "name": name})


@dataclass(frozen=True)
class Rules:
    """Which method, which rules in it, and which model."""

    method: str = key("fedavg", "the method, by name, or a rule of your own, FILE.py:NAME; its parameters are method.x")
    mixing: str | None = key(None, "another mixing rule than the method's; its parameters are mixing.x")
    server: str | None = key(None, "another server rule than the method's; its parameters are server.x")
    model: str | None = key(
        None,
        "the model, by name, or your own, FILE.py:NAME with arguments model.x (default: by the data, such as twocnn "
        "for cifar10; else twonn)",
    )
    code: str | None = key(
        None, "what your own code files must be, by SHA-256; a run writes it down, and is only continued with the same"
    )


@dataclass(frozen=True)
class Data:
    """Where the rows come from."""

    data: str = key("digits", "a data set by name, or your own: a .csv or .npz file, or a folder of pictures")
    data_root: str | None = key(None, "the folder of the data sets (default: FEDCHORD_DATA)", "data.root")
    skip_damaged: bool | None = key(
        None, "leave out damaged files of data that are made of many (default: false)", "data.skip_damaged"
    )
    data_label: str | None = key(None, "the column of classes in a csv file (default: label)", "data.label")
    data_target: str | None = key(None, "the column of numbers to predict, for regression", "data.target")
    data_client: str | None = key(
        None, "the column that says whose row it is (default: client, if there is one)", "data.client"
    )
    data_drop: tuple[str, ...] | None = key(None, "columns of a csv file to leave out, such as id,name", "data.drop")
    data_category: tuple[str, ...] | None = key(
        None, "columns of numbers that are codes of categories, such as sex,ward", "data.category"
    )
    data_scale: str | None = key(
        None, "client: numbers are scaled by each client's training rows; or none (default: client)", "data.scale"
    )
    data_text: tuple[str, ...] | None = key(
        None, "the column of texts, or two for pairs; needs model=encoder:FOLDER", "data.text"
    )
    data_length: int | None = key(None, "the most tokens of a text (default: 128)", "data.length")
    data_picture: str | None = key(None, "the column of paths in a csv file that lists pictures", "data.picture")
    data_size: int | None = key(None, "squeeze pictures to so many pixels a side (default: as they are)", "data.size")
    data_delimiter: str | None = key(
        None, "what separates the cells of a csv file, such as ; or tab (default: found)", "data.delimiter"
    )


@dataclass(frozen=True)
class Split:
    """How rows go to clients, and what each client keeps for testing."""

    split: str | None = key(None, "how rows go to clients (default: natural for data with clients, else pathological)")
    split_alpha: float | None = key(None, "for the Dirichlet splits; a small alpha makes clients differ", "split.alpha")
    split_shards: int | None = key(None, "shards per client of the pathological split", "split.shards")
    split_minimum: int | None = key(None, "the fewest rows a client may have", "split.minimum")
    clients: int | str | None = key(None, "the number of clients (default: 20; natural: all)")
    test: float = key(0.2, "the share of each client's rows kept for testing")
    validation: float = key(0.0, "the share of each client's rows kept for validation")


@dataclass(frozen=True)
class Newcomers:
    """Clients that come after training."""

    newcomers: int | float | None = key(
        None, "clients that never train and are measured at the end: a number or a share such as 0.1 (default: 0)"
    )
    newcomer_epochs: int | None = key(None, "epochs a newcomer trains before it is measured again (default: 1)")


@dataclass(frozen=True)
class Rows:
    """What is done to training rows."""

    noise: str | None = key(None, "label noise on training rows: pair, symmetric or none (default: none)")
    noise_rate: float | None = key(None, "the share of training labels that noise changes", "noise.rate")
    augment: bool | None = key(None, "vary training pictures at random (isic, tinyimagenet; default: false)")
    class_weights: bool | None = key(
        None, "each client weighs rare classes up in its loss, (n + L) / (n_c + 1) (default: false)"
    )


@dataclass(frozen=True)
class Synthetic:
    """A synthetic set that clients train on."""

    synthetic: str | None = key(
        None, "a synthetic set to train on beside the clients' rows: an .npz file, or the folder of a run that made one"
    )
    synthetic_add: str | None = key(
        None,
        "who gets it: all clients; the poor, with few rows; or missing, everyone the classes it has few rows of "
        "(default: all)",
        "synthetic.add",
    )
    synthetic_least: int | None = key(
        None,
        "fewer training rows are few (default: poor, the median over clients; missing, the set's rows of a class)",
        "synthetic.least",
    )


@dataclass(frozen=True)
class Judged:
    """How samples are judged, for methods that end with them."""

    judge: str | None = key(
        None, "for methods that end with samples: the classifier trained on them (default: by the shape of the data)"
    )
    judge_steps: int | None = key(None, "steps of that classifier (default: as the recipe has)", "judge.steps")
    judge_features: str | None = key(
        None,
        "Frechet distance and KID of the samples, by features of: classifier, inception:FILE or efficientnet-lite0 "
        "(default: not measured)",
        "judge.features",
    )
    judge_privacy: bool | None = key(
        None, "look for copies of training rows among the samples (default: false)", "judge.privacy"
    )

    def judged_by(self) -> Judge:
        """The recipe of the classifier that measures synthetic samples."""
        return Judge(self.judge, steps=self.judge_steps)


@dataclass(frozen=True)
class Swept:
    """Where between two models a client is measured."""

    sweep_lambdas: tuple[float, ...] | None = key(
        None,
        "for methods with two models: where between them they are measured, such as 0,0.25,0.5,0.75,1 "
        "(default: 0, 0.1, ..., 1)",
        "sweep.lambdas",
    )

    def lambdas(self) -> tuple[float, ...]:
        """Where models with two ends are measured."""
        return LAMBDAS if self.sweep_lambdas is None else self.sweep_lambdas


@dataclass(frozen=True)
class Some:
    """How many clients are measured, where they are too many."""

    eval_clients: int | None = key(None, "measure so many clients, drawn once, the same ones each time (default: all)")
    eval_all: bool | None = key(None, "with eval_clients: measure all clients in the end (default: false)")

    def measured(self, last: bool) -> int:
        """How many clients are measured, on the way or in the end; 0 is all of them."""
        return 0 if last and self.eval_all else self.eval_clients or 0


@dataclass(frozen=True)
class Chosen:
    """What all clients agree on before use."""

    choose: str | None = key(
        None,
        "what is chosen for all clients by their losses on rows held out of training: lambda (where between the global "
        "and their own model), epochs (of training before use) or both (default: nothing)",
    )
    choose_held: float | None = key(
        None, "the share of the training rows that is held out to choose by (default: 0.2)", "choose.held"
    )
    choose_epochs: tuple[int, ...] | None = key(
        None, "the numbers of epochs to choose from (default: 0,1,2,5,10)", "choose.epochs"
    )
    choose_lambdas: tuple[float, ...] | None = key(
        None, "the lambdas to choose from (default: 0, 0.1, ..., 1)", "choose.lambdas"
    )
    choose_within: float | None = key(
        None,
        "stay at the global model unless its loss is above the lowest by so many standard errors (default: 0, take the "
        "lowest)",
        "choose.within",
    )

    def chooser(self) -> Chooser | None:
        """What is chosen, and among which values; None if nothing."""
        if self.choose is None:
            return None
        grids = self.choose_lambdas or LAMBDAS, self.choose_epochs or EFFORTS
        return Chooser(self.choose, *grids, self.choose_within or 0.0)

    def held(self) -> float:
        """The share of the training rows that is held out to choose by."""
        return 0.0 if self.choose is None else HELD if self.choose_held is None else self.choose_held


@dataclass(frozen=True)
class Measured:
    """What is minimised, and what is measured."""

    loss: str | None = key(None, "for numbers to predict (data.target): squared or absolute error (default: squared)")

    metrics: tuple[str, ...] | None = key(
        None,
        "metrics beside the usual ones, such as f1,sensitivity,specificity,balanced-accuracy,auroc (default: none)",
    )


@dataclass(frozen=True)
class Rounds:
    """Rounds, cohort and seed."""

    rounds: int = key(20, "the number of rounds")
    cohort: int | float | str | None = key(
        None, "clients in a round: a number, a share such as 0.25, or all (default: 5, or all where there are fewer)"
    )
    seed: int = key(0, "the seed of everything that is random")
    average: float | None = key(
        None, "clients deploy the mean of the global models of this share of the rounds, the last ones (default: 0)"
    )
    central: bool | None = key(
        None,
        "a control: in every round one client trains on the training rows of all, whatever the cohort (default: false)",
    )

    def plan(self) -> Plan:
        """Rounds, cohort and seed."""
        average = self.average or 0.0
        if self.central:
            return Plan(self.rounds, 1, self.seed, average=average)
        if self.cohort is None:
            return Plan(self.rounds, COHORT, self.seed, at_most=True, average=average)
        cohort = 1.0 if self.cohort == "all" else self.cohort
        if isinstance(cohort, str | bool):
            raise fail("run", f"cohort must be a number of clients, a share such as 0.25, or all, got {self.cohort!r}")
        return Plan(self.rounds, cohort, self.seed, average=average)


@dataclass(frozen=True)
class Private:
    """Differential privacy of what leaves clients."""

    privacy: str | None = key(
        None,
        "hide by noise: clients (the server adds it, to sums of clipped updates) or rows (each client adds it, to "
        "clipped gradients of its rows) (default: nothing)",
    )
    privacy_epsilon: float | None = key(
        None, "how much may be told of one of them in all rounds; the noise is found", "privacy.epsilon"
    )
    privacy_delta: float | None = key(
        None, "the chance that more is told; well below one over their number (default: 1e-5)", "privacy.delta"
    )
    privacy_clip: float | None = key(
        None, "the largest norm of what one of them adds to a sum (default: 1)", "privacy.clip"
    )
    privacy_noise: float | None = key(
        None, "the noise, as a multiple of the clip, in place of an epsilon", "privacy.noise"
    )
    privacy_sampling: str | None = key(
        None,
        "how cohorts are drawn under privacy=clients: fixed, or poisson, where the cohort is a number on average "
        "(default: fixed)",
        "privacy.sampling",
    )

    def private(self) -> Privacy | None:
        """What is hidden; None if nothing."""
        if self.privacy is None:
            return None
        names = {part.name: part.name.removeprefix("privacy_") for part in fields(Private)}
        asked = {short: getattr(self, name) for name, short in names.items() if short != "privacy"}
        return Privacy(self.privacy, **{short: value for short, value in asked.items() if value is not None})


@dataclass(frozen=True)
class Sent:
    """In how many bytes updates leave clients."""

    compress: str | None = key(
        None, "send updates in fewer bytes: half (2 a number) or bytes (1), what is lost comes later (default: 4)"
    )
    compress_feedback: bool | None = key(
        None, "with false what is lost by rounding is lost, a control (default: true)", "compress.feedback"
    )

    def packing(self) -> Compress | None:
        """How uploads are packed; None if they are not."""
        return None if self.compress is None else Compress(self.compress, self.compress_feedback is not False)


@dataclass(frozen=True)
class Weathered:
    """Clients that are away and replies that get lost, as over a network."""

    weather_away: float | str | None = key(
        None,
        "who is away: a share of clients in every round, or clients and rounds such as 0:2-4,1:3 (default: nobody)",
        "weather.away",
    )
    weather_lost: float | str | None = key(
        None, "whose replies get lost, in the same words (default: nobody's)", "weather.lost"
    )
    weather_attempts: int | None = key(
        None, "how often those are asked whose replies are lost, until enough came (default: 3)", "weather.attempts"
    )
    weather_minimum: float | None = key(
        None,
        "the share of a cohort that must answer, with usable updates (default: 0.5; rules that need everyone: all)",
        "weather.minimum",
    )

    def terms(self) -> Terms:
        """When a round goes on."""
        return Terms(
            3 if self.weather_attempts is None else self.weather_attempts,
            0.5 if self.weather_minimum is None else self.weather_minimum,
        )

    def weather(self) -> Weather | None:
        """The weather of a run; None where it is clear."""
        found = Weather(self.weather_away or 0.0, self.weather_lost or 0.0, self.terms())
        return None if found.clear else found


@dataclass(frozen=True)
class Hostile:
    """Clients that are hostile."""

    attack: str | None = key(
        None,
        "what hostile clients do: sign-flip, scaled, noise, little, label-flip or lying; results are then those of the "
        "honest clients (default: nobody is hostile)",
    )
    attack_share: float | None = key(None, "the share of clients that are hostile (default: 0.2)", "attack.share")
    attack_scale: float | None = key(
        None, "how strong the attack is: the factor on update, noise, std or loss (default: by it)", "attack.scale"
    )

    def hostile(self) -> Attack | None:
        """The attack of a run; None where there is none."""
        if self.attack is None:
            return None
        return Attack(self.attack, 0.2 if self.attack_share is None else self.attack_share, self.attack_scale)


@dataclass(frozen=True)
class Defended:
    """How the server takes uploads."""

    bound: float | str | None = key(
        None,
        "the longest update that is taken as it is, longer ones are scaled down to it: a length, or median, that of "
        "the cohort's lengths (default: none)",
    )
    combine: str | None = key(
        None, "how uploads become one: mean (by weights), or by coordinate median or trimmed (default: mean)"
    )
    combine_trim: float | None = key(
        None, "the share of uploads that trimmed leaves out at each end (default: 0.2)", "combine.trim"
    )
    diverged: float | None = key(
        None,
        "a run ends early when the median client's loss is above so many times the first mean, or 1; 0 is never "
        "(default: 1000)",
    )

    def defended(self, terms: Terms) -> Defence:
        """How the server takes uploads; `terms` say how many must be left."""
        trim = TRIM if self.combine_trim is None else self.combine_trim
        grown = GROWN if self.diverged is None else self.diverged
        return Defence(self.bound, self.combine or "mean", trim, terms, grown)


@dataclass(frozen=True)
class Local:
    """How clients train."""

    epochs: int = key(1, "epochs of local training in a round")
    batch: int = key(10, "the local batch size; 0 is the whole client")
    lr: float = key(0.05, "the local learning rate")
    momentum: float = key(0.0, "local momentum, from zero in each round")
    weight_decay: float = key(0.0, "local weight decay")
    lr_decay: float = key(1.0, "the factor on the learning rate every lr_step rounds")
    lr_step: int = key(1, "the rounds between two decays of the learning rate")
    clip: float = key(0.0, "the largest norm of a local gradient; 0 is no limit")
    optimiser: str = key("sgd", "the local optimiser: sgd or adam")

    def training(self) -> Training:
        """How clients train, as it was asked for (a client rule may change it: `ClientRule.local`)."""
        return Training(**{part.name: getattr(self, part.name) for part in fields(Local)})


@dataclass(frozen=True)
class Execution:
    """Who computes, and what is written when."""

    executor: str = key("processes", "who runs the clients: processes, serial, vectorised, ranks (torchrun) or auto")
    workers: int | None = key(None, "worker processes (default: one per core)")
    device: str = key("auto", "cpu, cuda or auto")
    eval_every: int | None = key(None, "rounds between evaluations; 0 is only the last (default: about 50 in all)")
    checkpoint_every: int = key(10, "rounds between checkpoints; 0 is only the last")
    out: str | None = key(None, "the folder of the run (default: nothing is written)")
    log: tuple[str, ...] | None = key(
        None, "who is told of every round: tensorboard, loggers of your own, FILE.py:NAME, or none (default: none)"
    )
    profile: bool | None = key(
        None, "tell where the time went, and write a trace of it to the run's folder (default: false)"
    )


def key_of(part: Field[Any]) -> str:
    """The key of a field."""
    return part.metadata["name"] or part.name


def kind_of(part: Field[Any]) -> str:
    """The type of a field as it is written, where it has a value."""
    return str(part.type).removesuffix(" | None")


def is_number(value: object) -> bool:
    """Whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def typed(part: Field[Any], value: Any) -> Any:
    """A value in its field's type; which numbers are good is checked by those who use them."""
    kind, name, key = kind_of(part), part.name, key_of(part)
    if value is None and part.default is None:
        return None
    if kind == "str":
        require(isinstance(value, str) and bool(value), "run", f"{key} must be a word, got {value!r}")
    elif kind == "float":
        found = check.number("run", key, value)
        return None if name == "average" and not found else found  # 0 is the same as not to say it
    elif kind == "int":
        value = _plain(value)
        whole = isinstance(value, int) and not isinstance(value, bool)
        require(whole, "run", f"{key} must be a whole number, got {value!r}")
    elif kind == "bool":
        require(isinstance(value, bool), "run", f"{key} must be true or false, got {value!r}")
        usual = name == "compress_feedback"  # what is the usual is the same as not to say it
        return None if value is usual else value
    elif name in ("sweep_lambdas", "choose_lambdas"):
        grid = _grid(key, value)
        return None if grid == LAMBDAS else grid  # the same as not to say it
    elif name == "choose_epochs":
        efforts = tuple(_plain(part) for part in _grid(key, value))
        for effort in efforts:
            check.whole("run", key, effort)
        return None if efforts == EFFORTS else efforts
    elif name == "metrics":
        return _metrics(value) or None  # none is the same as not to say it
    elif name == "log":
        names = _words(key, value, " such as tensorboard,my_log.py:Log")
        return tuple(name for name in names if name != "none") or None
    elif kind == "tuple[str, ...]":
        return _words(key, value) or None
    elif name == "newcomers":
        good = is_number(value)
        require(good, "run", f"newcomers must be a number of clients or a share such as 0.1, got {value!r}")
        return value or None  # 0 is the same as not to say it
    elif name in ("weather_away", "weather_lost"):
        good = is_number(value) or isinstance(value, str)
        told = "a share such as 0.1, or clients and rounds such as 0:2-4,1:3"
        require(good, "run", f"{key} must be {told}, got {value!r}")
        return value or None  # 0 is the same as not to say it
    elif name == "bound":
        good = is_number(value) or isinstance(value, str)
        require(good, "run", f"bound must be a length above 0 or median, got {value!r}")
    elif name == "clients":
        require(value == "all" or is_number(value), "run", f"clients must be a whole number or all, got {value!r}")
        return _plain(value)
    return value


def _plain(value: Any) -> Any:
    """A whole number that was written like 1e3, as one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _metrics(value: Any) -> tuple[str, ...]:
    """Names of metrics, each once."""
    names = _words("metrics", value, " such as f1,auroc")
    for name in names:
        find(name)
    return names


def _words(key: str, value: Any, example: str = "") -> tuple[str, ...]:
    """Names, each once: a list, or a text with commas."""
    parts = value.strip("[] ").split(",") if isinstance(value, str) else value
    good = isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts)
    require(good, "run", f"{key} must be names{example}, got {value!r}")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _grid(key: str, value: Any) -> tuple[float, ...]:
    """A list of numbers, or the text of one."""
    text = isinstance(value, str)
    parts = value.strip("[] ").split(",") if text else value if isinstance(value, list | tuple) else [value]
    try:
        found = [float(part) if text else part for part in parts]
    except ValueError:
        found = [value]
    good = all(is_number(part) for part in found)
    require(good, "run", f"{key} must be numbers such as 0,0.25,0.5,0.75,1, got {value!r}")
    return tuple(float(part) for part in found)
