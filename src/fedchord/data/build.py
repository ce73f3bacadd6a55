"""From a data set to a federation: check, partition, local split, label noise."""

from __future__ import annotations

import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import fail, require, warn, whole
from fedchord.data.augment import Pictures
from fedchord.data.federation import DataSet, Federation
from fedchord.data.noise import corrupt
from fedchord.data.partition import ClassDirichlet, Dirichlet, Natural, Partition, Pathological
from fedchord.data.ragged import Ragged
from fedchord.data.scaling import Scaling
from fedchord.data.split import own_split, split_clients
from fedchord.data.validate import check_data
from fedchord.tensors import Tensors

APART = 100
"""A feature whose spread is larger than the median feature's by this factor hides the others unless it is scaled."""


def federate(
    dataset: DataSet,
    partition: Partition,
    num_clients: int | None = None,
    test: float = 0.2,
    validation: float = 0.0,
    noise: str | None = None,
    noise_rate: float = 0.0,
    seed: int = 0,
    augment: bool = False,
    class_weights: bool = False,
    first: int = 0,
    public: bool = False,
) -> Federation:
    """K clients from a data set; the data set itself is never changed, and no row is copied unless it is scaled.

    The rows are given to clients by the partition, each client's rows are split locally (stratified by label), and
    label noise, if any, hits training labels only: validation and test labels stay clean. `num_clients` may be left out
    for natural clients, which then are all used. Features that the data set marks as `scaled` are standardised by each
    client with its own training rows. Natural clients of data that come with a split (`DataSet.parts`) keep it, and
    `test` is not used. `augment` varies training pictures by the data set's rule; `class_weights` adds a column
    `weight` (`class_weight`). `first` is the number of the first client, where these are clients of a larger federation
    whose other rows are elsewhere: its rows are then split as they would be there. With `public` features are scaled by
    what is known without the rows (`DataSet.usual`). What was done is told in `notes`.
    """
    whole("federate", "seed", seed)
    check_data(dataset)
    labels = dataset.columns["y"]
    held = _hold(dataset, partition, num_clients, seed)
    keys = rng.fold(rng.key(seed, "split"), torch.arange(first, first + len(held)))
    assert isinstance(keys, Tensor)
    own = dataset.parts if isinstance(partition, Natural) else None
    if own is None:
        train, valid, tests = split_clients(held, _strata(labels), test, validation, keys)
    else:
        train, valid, tests = own_split(held, own, _strata(labels), validation, keys)
        require(int(train.sizes.min()) > 0, dataset.name, "a client has no training rows in the split of the data")
    columns, noise_notes = _noisy(dataset, train, noise, noise_rate, seed)
    columns, scaling, scale_notes = _scaled(dataset, columns, held, train, public)
    pictures, shown_notes = _shown(dataset, augment)
    if class_weights:
        columns = columns | {"weight": class_weight(columns["y"], dataset.classes, held, train)}
        shown_notes.append(
            "A row weighs (n + L) / (n_c + 1) in its client's loss, n_c of its n training rows are of c."
        )
    by = "" if dataset.regression else ", stratified by label"
    notes = [
        *_partition_notes(dataset, partition, held, num_clients, seed),
        *(_split_notes(held, train, valid, tests, by) if own is None else _own_notes(own, train, valid, tests)),
        *([] if dataset.regression else _majority_note(columns, dataset.classes, tests)),
        *noise_notes,
        *scale_notes,
        *shown_notes,
        *([dataset.origin] if dataset.origin else []),
    ]
    names = _client_names(dataset, partition, held)
    return Federation(
        dataset.name,
        columns,
        dataset.classes,
        train,
        valid,
        tests,
        names,
        dataset.holdout,
        tuple(notes),
        pictures,
        dataset.blocks,
        dataset.class_names,
        dataset.features,
        scaling,
        _target(columns["y"][train.rows]) if dataset.regression else None,
        verdict=dataset.verdict,
    )


def class_weight(labels: Tensor, classes: int, held: Ragged, train: Ragged) -> Tensor:
    """How much each row weighs against the others of its client: (n + L) / (n_c + 1).

    c is the label of the row, n_c the number of the client's training rows with it, n the number of all of them and L
    the number of classes: one over the share of c, with one more row of every class. Rows that no client holds weigh 1.
    """
    one = labels.ndim == 1 and not labels.is_floating_point()
    require(one, "federate", "class weights need one class per row")
    weights = torch.ones(len(labels))
    for client in range(len(held)):
        rows, counts = held[client], torch.bincount(labels[train[client]], minlength=classes)
        weights[rows] = ((counts.sum() + classes) / (counts + 1))[labels[rows]].to(weights.dtype)
    return weights


def _shown(dataset: DataSet, augment: bool) -> tuple[Pictures | None, list[str]]:
    """How pictures are shown, and what to tell about it."""
    if not augment:
        return dataset.shown, []
    require(dataset.augmented is not None, "federate", f"{dataset.name} has no training augmentation")
    return dataset.augmented, [f"Training pictures are varied by {dataset.augmented}; others are not."]


def _strata(labels: Tensor) -> Tensor:
    """What the local split is stratified by: the class, or nothing where a row has several (text) or none."""
    classed = labels.ndim == 1 and not labels.is_floating_point()
    return labels if classed else torch.zeros(len(labels), dtype=torch.int64)


def _hold(dataset: DataSet, partition: Partition, num_clients: int | None, seed: int) -> Ragged:
    """The rows of each client, and a check that the partition kept its promise."""
    labels, kind = dataset.columns["y"], type(partition).__name__
    if num_clients is None:
        require(isinstance(partition, Natural), "federate", f"num_clients is needed for {kind}")
        num_clients = len(labels)
    whole("federate", "num_clients", num_clients, 1)
    by_label = isinstance(partition, Pathological | Dirichlet | ClassDirichlet)
    require(labels.ndim == 1 or not by_label, kind, f"needs one label per row, {dataset.name} has several")
    numbers = by_label and dataset.regression
    require(not numbers, kind, f"needs classes, {dataset.name} has numbers to predict; use split=iid")
    parts = partition.assign(labels, num_clients, dataset.classes, rng.key(seed, "partition"), dataset.groups)
    held = Ragged.of(parts)
    require(len(held) > 0 and int(held.sizes.min()) > 0, kind, "gave a client no rows")
    inside = int(held.rows.min()) >= 0 and int(held.rows.max()) < len(labels)
    require(inside, kind, f"gave a row number outside 0..{len(labels) - 1}")
    twice = (torch.bincount(held.rows, minlength=len(labels)) > 1).nonzero().flatten()
    if len(twice):
        raise fail(kind, f"gave row {int(twice[0])} to two clients")
    return held


def _noisy(dataset: DataSet, train: Ragged, noise: str | None, rate: float, seed: int) -> tuple[Tensors, list[str]]:
    """The columns with noise on the training labels, and what to tell about it."""
    if noise is None:
        if rate != 0:
            raise fail("federate", f"noise_rate is {rate!r} but noise is not chosen (pair or symmetric)")
        return dict(dataset.columns), []
    labels = dataset.columns["y"]
    require(labels.ndim == 1, "federate", f"label noise needs one label per row, {dataset.name} has several")
    require(not dataset.regression, "federate", f"label noise needs classes, {dataset.name} has numbers to predict")
    # Every row has its own draw, so its noise does not depend on the partition.
    drawn = corrupt(labels, noise, rate, dataset.classes, rng.key(seed, "noise"))
    noisy = labels.clone()
    noisy[train.rows] = drawn[train.rows]
    wrong, total = int((noisy != labels).sum()), len(train.rows)
    note = (
        f"Label noise ({noise}, rate {rate:g}) changed {wrong} of {total} training labels ({wrong / total:.1%}); "
        "validation and test labels are clean."
    )
    return {**dataset.columns, "y": noisy}, [note]


def _scaled(
    dataset: DataSet, columns: Tensors, held: Ragged, train: Ragged, public: bool = False
) -> tuple[Tensors, Scaling | None, list[str]]:
    """The columns with gaps filled and the marked features standardised, how, and what to tell about it."""
    x = columns["x"]
    if dataset.scaled is None or not bool(dataset.scaled.any()):
        _warn_scales(dataset, x, train.rows)
    if dataset.scaled is None:
        return columns, None, []
    marked, gaps = int(dataset.scaled.sum()), int(x[held.rows].isnan().sum())
    if public and dataset.usual is not None:
        scaling = Scaling.known(dataset.usual, dataset.scaled, len(held))
        note = f"{marked} of {x.shape[1]} features are scaled by centres and spreads that are known without the rows"
        return {**columns, "x": scaling.spread(x, held)}, scaling, [f"{note}; {gaps} missing values became the centre."]
    by = f"{marked} of {x.shape[1]} features are standardised by each client, with the mean and std of its own training"
    note = f"{by} rows; {gaps} missing values became that mean."
    if not marked:
        note = f"Features are not scaled; {gaps} missing values became the mean of the client's training rows."
    scaling = Scaling.of(x, dataset.scaled, train)
    return {**columns, "x": scaling.spread(x, held)}, scaling, [note]


def _warn_scales(dataset: DataSet, x: Tensor, train: Tensor) -> None:
    """Warn where features of training rows differ by orders of magnitude and nothing brings them to one scale."""
    if x.ndim != 2 or not x.is_floating_point() or x.shape[1] < 2:
        return  # before a row is read: pictures lie on disk until they are used
    rows = x[train]
    filled = torch.where(rows.isnan(), rows.nanmean(0), rows).double()
    spread = filled.std(0, correction=0)
    varies = (filled.amax(0) > filled.amin(0)) & (spread > 0)
    if int(varies.sum()) < 2:
        return
    usual, most = spread[varies].median(), spread[varies].max()  # of an even number the lower of the two in the middle
    if float(most / usual) <= APART:
        return
    labels = [label for feature in dataset.features for label in feature.labels]
    small, large = (int(((spread == value) & varies).nonzero()[0]) for value in (usual, most))
    which = f"features {labels[small] if labels else small} and {labels[large] if labels else large}"
    apart = f"{which} differ in spread by a factor of {float(most / usual):.0e}"
    warn(dataset.name, f"{apart} and nothing scales them; data.scale=client (in Python scale='client') does")


def _target(values: Tensor) -> tuple[float, float]:
    """The mean and std of what is to be predicted, over all training rows; a std of 1 where it does not vary."""
    return float(values.double().mean()), float(values.double().std(correction=0)) or 1.0


def _client_names(dataset: DataSet, partition: Partition, held: Ragged) -> tuple[str, ...]:
    """The groups' names for natural clients, else the numbers."""
    if not isinstance(partition, Natural) or dataset.groups is None:
        return tuple(str(client) for client in range(len(held)))
    groups = dataset.groups[held.rows[held.offsets[:-1]]].tolist()
    return tuple(dataset.group_names[group] if dataset.group_names else str(group) for group in groups)


def _partition_notes(dataset: DataSet, partition: Partition, held: Ragged, asked: int | None, seed: int) -> list[str]:
    labels, rows = dataset.columns["y"], len(dataset.columns["y"])
    used = len(held.rows)
    notes = [f"{dataset.name}: {used} of {rows} rows went to {len(held)} clients by {partition}, seed {seed}."]
    if asked is not None and asked > len(held):
        notes.append(f"{asked} clients were asked for; the data have {len(held)}, and all of them are used.")
    notes.append(f"Rows per client: {_spread(held.sizes)}.")
    if labels.ndim == 1 and not dataset.regression:
        pairs = torch.unique(held.owners * dataset.classes + labels[held.rows])
        notes[-1] = f"{notes[-1][:-1]}; classes per client: {_spread(torch.bincount(pairs // dataset.classes))}."
    return notes


def _split_notes(held: Ragged, train: Ragged, valid: Ragged, tests: Ragged, stratified: str) -> list[str]:
    sizes = f"{len(train.rows)} training, {len(valid.rows)} validation and {len(tests.rows)} test rows"
    notes = [f"Local split{stratified}: {sizes}."]
    small = int((held.sizes < 2).sum())
    if small and len(tests.rows):
        have = "client has" if small == 1 else "clients have"
        notes.append(f"{small} {have} a single row, which is used for training; such a client has no test rows.")
    return notes


def _own_notes(parts: Tensor, train: Ragged, valid: Ragged, tests: Ragged) -> list[str]:
    sizes = f"{len(train.rows)} training, {len(valid.rows)} validation and {len(tests.rows)} test rows"
    unused = int((parts == 1).sum()) if not len(valid.rows) else 0
    dropped = f"; {unused} validation rows are not used" if unused else ""
    without = int((tests.sizes == 0).sum())
    return [
        f"Local split as the data come: {sizes}{dropped}.",
        *([f"{without} of {len(tests)} clients have no test rows."] if without else []),
    ]


def majority(columns: Tensors, classes: int, rows: Ragged) -> Tensor:
    """The share of each client's most frequent label among some of its rows, NaN without rows.

    It is what a client reaches by always giving the same answer. Labels of a text count where its mask is true.
    """
    labels = columns["y"][rows.rows]
    counted = columns["mask"][rows.rows] if labels.ndim == 2 and "mask" in columns else torch.ones_like(labels).bool()
    owner = rows.owners.reshape(-1, *[1] * (labels.ndim - 1)).expand_as(labels)[counted]
    pairs, counts = torch.unique(owner * classes + labels[counted], return_counts=True)
    most = torch.zeros(len(rows), dtype=torch.int64).scatter_reduce(0, pairs // classes, counts, "amax")
    return most / torch.bincount(owner, minlength=len(rows))


def _majority_note(columns: Tensors, classes: int, tests: Ragged) -> list[str]:
    """What a client that always answers with its most frequent test label would reach."""
    found = majority(columns, classes, tests)
    if bool(found.isnan().all()):
        return []
    return [f"A client's most frequent label makes up {found.nanmean():.2%} of its test rows (mean over clients)."]


def _spread(values: Tensor) -> str:
    return f"{int(values.min())} to {int(values.max())} (median {int(values.median())})"
