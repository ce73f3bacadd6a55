"""Berka: does a loan of a Czech bank fail, in seven regions, which are the clients (PKDD'99 Discovery Challenge).

Licence: none is stated. Source: data_berka.zip of the page of the challenge, MD5 88d001738478c5e348a0896878f2433c (the
sum of a public loader; the makers publish none), which `get` checks. Layout: `berka/NAME.asc`. Read are loan, account,
district, order and trans of the eight tables (`;` between cells, a header line, `?` for a missing value). Where
trans.asc, with its million lines, is not at hand, trans_by_account.csv may stand in: a line per account with
account_id, derived_num_trans, derived_mean_amount and derived_mean_balance (empty where it is not known).

One row per loan. 13 numbers: amount, duration and payments of the loan; days from the opening of the account to the
loan; inhabitants (A4), average salary (A11), entrepreneurs (A14), mean unemployment (A12, A13) and mean crimes (A15,
A16) of the account's district; mean amount of its orders; number, mean amount and mean balance of its transactions. And
two marks of the account's frequency: weekly, after each transaction (neither: monthly). That are the 15 features of the
thesis. The label is 1 for the statuses B and D (not paid, in debt), 0 for A and C. District 69 has neither A12 nor A15,
and its means are A13 and A16. Every client scales the 13 numbers with its own training rows (`standardise`); in Prague,
which is one district, those of the district are 0.

**The mean balance leaks.** It covers the months after the loan, in which a failing account runs dry; no other number
ranks the loans so well by their label (AUROC 0.70 by itself; 0.51 and 0.56 for the mean amount and the number of
transactions, which cover the same months; 0.60 for the mean balance before the loan, of the 354 loans for which we have
it). Where it is unknown, in trans_by_account.csv, the gap is not by chance either: the 51 accounts were opened late,
none of their loans has ended, and 3 of them are bad (6 %) against 73 of the other 631 (12 %; p = 0.35, so that the gap
alone hardly tells the label). `berka` therefore has 14 features, without it; `berka-leaking` has all 15, for comparison
with the thesis alone.

`berka-before` has all 15 features and no leak from the transactions: it counts those with a date before the loan's, and
no others. trans_by_account.csv may stand in again, with derived_preloan_num_trans and derived_preloan_mean_balance
(empty where they are not known); these are derived aggregates and not an original table, which `origin` says. There the
mean amount before the loan is not known, and is 0 after scaling; the others are known of 354 loans, which are those of
1997 and later. So the gap tells the year of the loan, which a bank knows when it decides, and nothing after it. The
orders have no date in any of the three.

682 loans, 76 of them bad. North Bohemia, 61 loans with a single bad one, is left out, as in the thesis: 621 loans in 7
regions, mean 88.71 and std 24.78 (ddof 0) per region, which are the thesis' numbers exactly; 75 are bad. (The thesis
writes that all eight tables are joined; three of them add no feature.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from fedchord.check import fail, require
from fedchord.core.inputs import Block
from fedchord.data.features import Feature
from fedchord.data.federation import DataSet
from fedchord.data.formats.table import Row, read_rows
from fedchord.data.source import Source

Found = TypeVar("Found")

REGIONS = (
    *("Prague", "central Bohemia", "south Bohemia", "west Bohemia", "north Bohemia"),
    *("east Bohemia", "south Moravia", "north Moravia"),
)
LEFT_OUT = "north Bohemia"
CLIENTS = tuple(region for region in REGIONS if region != LEFT_OUT)
FREQUENCIES = ("POPLATEK MESICNE", "POPLATEK TYDNE", "POPLATEK PO OBRATU")
BAD = {"A": 0, "B": 1, "C": 0, "D": 1}
NUMBERS = (
    *("amount", "duration", "payments", "days", "inhabitants", "salary", "entrepreneurs", "unemployment", "crimes"),
    *("mean order", "transactions", "mean amount", "mean balance"),
)
FEATURES = (*NUMBERS, "weekly", "after transaction")
LEAKING = NUMBERS.index("mean balance")

_TABLES = {
    "loan": ("account_id", "date", "amount", "duration", "payments", "status"),
    "account": ("account_id", "district_id", "frequency", "date"),
    "district": ("A1", "A3", "A4", "A11", "A12", "A13", "A14", "A15", "A16"),
    "order": ("account_id", "amount"),
    "trans": ("account_id", "date", "amount", "balance"),
}
_STAND_IN = ("derived_num_trans", "derived_mean_amount", "derived_mean_balance")
_STAND_IN_BEFORE = ("derived_preloan_num_trans", "", "derived_preloan_mean_balance")


def _load(root: Path, name: str) -> DataSet:
    """Rows of 14 numbers, or 15 with the mean balance, NaN where it is unknown; clients are the regions."""
    source = SOURCES[name]
    loans = list(_rows(source, root, "loan"))
    granted = {row.text("account_id"): _date(row) for row in loans}
    accounts = _by_key(_rows(source, root, "account"), "account_id")
    districts = _by_key(_rows(source, root, "district"), "A1")
    orders = _means(_rows(source, root, "order"), granted, ("amount",))
    trans, derived = _transactions(source, root, granted)
    x, y, groups = [], [], []
    for loan in loans:
        account = _find(loan, accounts, "account_id", "account.asc")
        district = _find(account, districts, "district_id", "district.asc")
        region = district.category("A3", REGIONS)
        label = BAD[loan.category("status", tuple(BAD))]
        if region != LEFT_OUT:
            order = _find(loan, orders, "account_id", "order.asc")
            made = _find(loan, trans, "account_id", "the transactions")
            x.append([*_loan_and_place(loan, account, district), order[1], *made, *_marks(account)])
            y.append(label)
            groups.append(CLIENTS.index(region))
    require(bool(y), source.name, f"no loan is of the regions {', '.join(CLIENTS)}")
    kept = [place for place in range(len(FEATURES)) if source is not SOURCE or place != LEAKING]
    return DataSet(
        source.name,
        {"x": torch.tensor(x, dtype=torch.float32)[:, kept], "y": torch.tensor(y)},
        2,
        groups=torch.tensor(groups),
        group_names=CLIENTS,
        origin=f"{source.origin(len(y), 0)}{derived} {TOLD[name]}",
        scaled=torch.tensor([place < len(NUMBERS) for place in kept]),
        blocks=(Block(len(kept) - 2, len(kept), none=True),),
        class_names=("repaid", "bad"),
        features=tuple(Feature(FEATURES[place]) for place in kept),
    )


def _loan_and_place(loan: Row, account: Row, district: Row) -> list[float]:
    days = (_date(loan) - _date(account)).days
    own = [loan.number("amount"), loan.number("duration"), loan.number("payments"), float(days)]
    place = [district.number(column) for column in ("A4", "A11", "A14")]
    return [*own, *place, _mean_known(district, "A12", "A13"), _mean_known(district, "A15", "A16")]


def _marks(account: Row) -> list[float]:
    frequency = account.category("frequency", FREQUENCIES)
    return [float(frequency == known) for known in FREQUENCIES[1:]]


def _date(row: Row) -> date:
    """A day of the last century, YYMMDD."""
    text = row.text("date")
    try:
        return date(1900 + int(text[:2]), int(text[2:4]), int(text[4:]))
    except ValueError:
        raise fail(row.owner, f"{row.where('date')} must be a date YYMMDD, got {text!r}") from None


def _mean_known(row: Row, *columns: str) -> float:
    values = [value for column in columns if not math.isnan(value := row.number(column, "?"))]
    require(bool(values), row.owner, f"{row.where(columns[0])} and {columns[1]} are both missing")
    return sum(values) / len(values)


# -- tables --------------------------------------------------------------------------------------------------------


def _rows(source: Source, root: Path, table: str) -> Iterator[Row]:
    return read_rows(source.name, source.locate(root, f"berka/{table}.asc"), _TABLES[table], ";")


def _by_key(rows: Iterable[Row], column: str) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        key = row.text(column)
        require(key not in found, row.owner, f"{row.where(column)} repeats {key}")
        found[key] = row
    return found


def _find(row: Row, table: dict[str, Found], column: str, name: str) -> Found:
    """What belongs to the key in a row's column; a table without it was cut off."""
    key = row.text(column)
    if key not in table:
        raise fail(row.owner, f"{name} of {row.path.parent} has no {column} {key}, which {row.path.name} refers to")
    return table[key]


def _means(
    rows: Iterable[Row], granted: dict[str, date], columns: tuple[str, ...], before: bool = False
) -> dict[str, list[float]]:
    """Of each account with a loan: how many rows it has, all of them or those before the loan, and the means of some
    columns; NaN where there are no rows before it."""
    sums: dict[str, list[float]] = {}
    nothing = [0.0] + [math.nan] * len(columns)
    known = {}
    for row in rows:
        key = row.text("account_id")
        if key in granted:
            known[key] = nothing
            if before and _date(row) >= granted[key]:
                continue
            total = sums.setdefault(key, [0.0] * (1 + len(columns)))
            for place, value in enumerate((1.0, *(row.number(column) for column in columns))):
                total[place] += value
    return known | {key: [total[0], *(value / total[0] for value in total[1:])] for key, total in sums.items()}


def _transactions(source: Source, root: Path, granted: dict[str, date]) -> tuple[dict[str, list[float]], str]:
    """Of each account with a loan: number, mean amount, mean balance of its transactions; and a word on stand-ins."""
    path, before = source.locate(root, "berka/trans.asc"), source is BEFORE
    if path.suffix == ".asc":
        return _means(_rows(source, root, "trans"), granted, ("amount", "balance"), before), ""
    columns = _STAND_IN_BEFORE if before else _STAND_IN
    rows = _by_key(read_rows(source.name, path, ("account_id", *filter(None, columns))), "account_id")
    gaps = columns if before else columns[-1:]
    found = {
        key: [row.number(column, "" if column in gaps else None) if column else math.nan for column in columns]
        for key, row in rows.items()
        if key in granted
    }
    return found, f" The numbers on transactions are derived aggregates ({path.name}), not the original table."


def _source(name: str, title: str) -> Source:
    return Source(
        name=name,
        title=f"Berka loans by region, without north Bohemia, {title}",
        licence="none stated",
        home="https://sorry.vse.cz/~berka/challenge/pkdd1999/data_berka.zip (also in the Internet Archive)",
        load=partial(_load, name=name),
        classes=2,
        natural=True,
        table=True,
        rows=621,
        files=(
            *((f"berka/{table}.asc",) for table in _TABLES if table != "trans"),
            ("berka/trans.asc", "berka/trans_by_account.csv"),
        ),
    )


SOURCE = _source("berka", "14 features")
LEAKY = _source("berka-leaking", "15 features (with the mean balance, which leaks the label)")
BEFORE = _source("berka-before", "15 features (transactions before the loan only)")
SOURCES = {source.name: source for source in (SOURCE, LEAKY, BEFORE)}
TOLD = {
    "berka": "Without the mean balance.",
    "berka-leaking": "LEAKING: the mean balance covers the time after the loan.",
    "berka-before": "Transactions before the loan only.",
}
