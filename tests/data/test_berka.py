"""Berka on small tables in the official layout, joined once more by SQL, and on the real tables if present."""

import csv
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import fisher_exact
from sklearn.metrics import roc_auc_score

from fedchord.check import FedchordError
from fedchord.data import SOURCES, Natural, federate, load, status
from fedchord.data.sources import berka

HEADS = {
    "account": ["account_id", "district_id", "frequency", "date"],
    "district": [f"A{number}" for number in range(1, 17)],
    "loan": ["loan_id", "account_id", "date", "amount", "duration", "payments", "status"],
    "order": ["order_id", "account_id", "bank_to", "account_to", "amount", "k_symbol"],
    "trans": [
        *("trans_id", "account_id", "date", "type", "operation"),
        *("amount", "balance", "k_symbol", "bank", "account"),
    ],
}
REGIONS = (
    *("Prague", "central Bohemia", "south Bohemia", "west Bohemia"),
    *("north Bohemia", "east Bohemia", "south Moravia", "north Moravia"),
)
FREQUENCIES = ("POPLATEK MESICNE", "POPLATEK TYDNE", "POPLATEK PO OBRATU")


def put(root: Path, accounts: int = 90, seed: int = 0) -> dict[str, list[list[str]]]:
    """Five small tables: a loan for four accounts of five, words in quotes, one district without A12 and A15."""
    generator = np.random.default_rng(seed)
    draw = generator.integers
    tables: dict[str, list[list[str]]] = {name: [] for name in HEADS}
    for number in range(1, 12):
        figures = [str(draw(1, 99)) for _ in range(6)]
        gap = number == 9
        tables["district"].append(
            [
                *(str(number), f"Town {number}", REGIONS[number % 8], str(draw(40000, 300000)), *figures),
                *(str(draw(8000, 12000)), "?" if gap else f"{draw(1, 9)}.{draw(10, 99)}", f"{draw(1, 9)}.5"),
                *(str(draw(80, 170)), "?" if gap else str(draw(800, 9000)), str(draw(800, 9000))),
            ]
        )
    for account in range(1, accounts + 1):
        opened = f"{draw(93, 96)}{draw(1, 13):02}{draw(1, 29):02}"
        tables["account"].append([str(account), str(account % 11 + 1), FREQUENCIES[account % 3], opened])
        for _ in range(draw(1, 4)):
            order = str(len(tables["order"]) + 1)
            tables["order"].append([order, str(account), "YZ", "87144583", f"{draw(100, 9000)}.70", "SIPO"])
        for _ in range(draw(2, 9)):
            entry = str(len(tables["trans"]) + 1)
            money = [f"{draw(100, 9000)}.10", f"{draw(-3000, 90000)}.00"]
            tables["trans"].append([entry, str(account), "970102", "PRIJEM", "VKLAD", *money, "", "", ""])
        if account % 5:
            granted = f"{draw(97, 99)}{draw(1, 13):02}{draw(1, 29):02}"
            sums = [str(draw(5000, 500000)), str(12 * draw(1, 6)), f"{draw(300, 9000)}.00"]
            tables["loan"].append([str(5000 + account), str(account), granted, *sums, "ABCD"[draw(0, 4)]])
    for name, rows in tables.items():
        write(root / f"berka/{name}.asc", HEADS[name], rows)
    return tables


def write(path: Path, head: list[str], rows: list[list[str]], delimiter: str = ";") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
        writer.writerow(head)
        for row in rows:
            writer.writerow(
                [float(cell) if cell.replace(".", "", 1).isdecimal() and "." in cell else cell for cell in row]
            )


JOIN = """
select d.A3, l.status in ('B', 'D'), 0.0 + l.amount, 0.0 + l.duration, 0.0 + l.payments,
  julianday('19' || substr(l.date, 1, 2) || '-' || substr(l.date, 3, 2) || '-' || substr(l.date, 5, 2))
  - julianday('19' || substr(a.date, 1, 2) || '-' || substr(a.date, 3, 2) || '-' || substr(a.date, 5, 2)),
  0.0 + d.A4, 0.0 + d.A11, 0.0 + d.A14,
  (select avg(0.0 + v) from (select d.A12 as v union all select d.A13) where v != '?'),
  (select avg(0.0 + v) from (select d.A15 as v union all select d.A16) where v != '?'),
  (select avg(0.0 + amount) from orders o where o.account_id = l.account_id),
  (select count(*) from trans t where t.account_id = l.account_id),
  (select avg(0.0 + amount) from trans t where t.account_id = l.account_id),
  (select avg(0.0 + balance) from trans t where t.account_id = l.account_id),
  a.frequency = 'POPLATEK TYDNE', a.frequency = 'POPLATEK PO OBRATU'
from loan l join account a on a.account_id = l.account_id join district d on d.A1 = a.district_id
where d.A3 != 'north Bohemia' order by l.rowid
"""


def joined(tables: dict[str, list[list[str]]]) -> list[tuple]:
    """Region, label and 15 features of every loan, by SQL."""
    store = sqlite3.connect(":memory:")
    for name, rows in tables.items():
        called = "orders" if name == "order" else name
        store.execute(f"create table {called} ({', '.join(f'{column} text' for column in HEADS[name])})")
        store.executemany(f"insert into {called} values ({', '.join('?' * len(HEADS[name]))})", rows)
    store.execute("create index by_account on trans (account_id)")
    return store.execute(JOIN).fetchall()


@pytest.mark.parametrize("name, width", [("berka", 14), ("berka-leaking", 15)])
def test_the_join_against_sql(tmp_path: Path, name: str, width: int) -> None:
    found = joined(put(tmp_path))
    data = load(name, tmp_path)
    features = np.array([row[2:] for row in found])
    if width == 14:
        features = np.delete(features, 12, axis=1)
    assert data.columns["x"].shape == (len(found), width) and len(found) > 50
    assert np.allclose(data.columns["x"].numpy(), features, rtol=1e-6)
    assert data.columns["y"].tolist() == [row[1] for row in found]
    assert [data.group_names[group] for group in data.groups.tolist()] == [row[0] for row in found]
    assert len(data.group_names) == 7 and "north Bohemia" not in data.group_names
    assert data.scaled.tolist() == [True] * (width - 2) + [False] * 2


def test_a_loan_by_hand(tmp_path: Path) -> None:
    berka_folder = tmp_path / "berka"
    place = ["9", "Jesenik", "north Moravia", "42821", *"4513", "3", "48.4", "8173", "?", "7.01", "124", "?", "1358"]
    write(berka_folder / "district.asc", HEADS["district"], [place])
    write(berka_folder / "account.asc", HEADS["account"], [["4", "9", "POPLATEK TYDNE", "931230"]])
    write(berka_folder / "loan.asc", HEADS["loan"], [["1", "4", "940105", "96396", "12", "8033.00", "B"]])
    orders = [
        ["1", "4", "YZ", "1", "100.50", ""],
        ["2", "7", "YZ", "1", "9.00", ""],
        ["3", "4", "YZ", "1", "50.50", ""],
    ]
    write(berka_folder / "order.asc", HEADS["order"], orders)
    moves = [
        ["1", "4", "931230", "PRIJEM", "VKLAD", a, b, "", "", ""]
        for a, b in (("700.00", "700.00"), ("100.00", "-60.00"))
    ]
    write(berka_folder / "trans.asc", HEADS["trans"], moves)
    data = load("berka-leaking", tmp_path)
    row = [96396, 12, 8033, 6, 42821, 8173, 124, 7.01, 1358, 75.5, 2, 400, 320, 1, 0]
    assert data.columns["x"][0].tolist() == pytest.approx(row)
    assert (data.columns["y"].tolist(), data.group_names[data.groups[0]]) == ([1], "north Moravia")


def stand_in(root: Path, tables: dict[str, list[list[str]]], gaps: bool = True) -> set[str]:
    """Means by account instead of the transactions; returns the accounts whose mean balance is not told."""
    (root / "berka/trans.asc").unlink()
    without, rows = set(), []
    for place, loan in enumerate(tables["loan"]):
        own = [row for row in tables["trans"] if row[1] == loan[1]]
        amount, balance = (sum(float(row[column]) for row in own) / len(own) for column in (5, 6))
        if gaps and place % 4 == 0:
            without.add(loan[1])
        rows.append([loan[1], str(len(own)), repr(amount), "" if loan[1] in without else repr(balance)])
    head = ["account_id", "derived_num_trans", "derived_mean_amount", "derived_mean_balance"]
    path = root / "berka/trans_by_account.csv"
    path.write_text("".join(",".join(row) + "\n" for row in [head, *rows]))
    return without


@pytest.mark.parametrize("name", ["berka", "berka-leaking"])
def test_means_by_account_stand_in_for_the_transactions(tmp_path: Path, name: str) -> None:
    tables = put(tmp_path)
    whole = load(name, tmp_path)
    stand_in(tmp_path, tables, gaps=False)
    again = load(name, tmp_path)
    assert torch.allclose(again.columns["x"], whole.columns["x"], rtol=1e-6)
    assert torch.equal(again.columns["y"], whole.columns["y"])


def test_unknown_balances_are_gaps_that_only_the_leaking_source_has(tmp_path: Path) -> None:
    without = stand_in(tmp_path, put(tmp_path))
    plain, leaking = load("berka", tmp_path), load("berka-leaking", tmp_path)
    gaps = leaking.columns["x"].isnan()
    assert not plain.columns["x"].isnan().any()
    assert 0 < int(gaps.sum()) <= len(without) and int(gaps[:, berka.LEAKING].sum()) == int(gaps.sum())
    assert torch.equal(torch.cat([leaking.columns["x"][:, :12], leaking.columns["x"][:, 13:]], 1), plain.columns["x"])
    made = federate(leaking, Natural(), seed=1)
    assert (made.columns["x"][gaps] == 0).all()
    assert plain.origin.endswith("Without the mean balance.")
    assert leaking.origin.endswith("LEAKING: the mean balance covers the time after the loan.")
    assert "leaks the label" in SOURCES["berka-leaking"].title


def test_prague_is_one_district_and_learns_nothing_from_it(tmp_path: Path) -> None:
    put(tmp_path)
    made = federate(load("berka", tmp_path), Natural(), seed=1)
    prague = made.client_names.index("Prague")
    rows = torch.cat([made.train[prague], made.test[prague]])
    assert made.columns["x"][rows][:, 4:9].abs().max() == 0
    assert made.columns["x"][rows][:, 0].abs().max() > 0


def change(root: Path, table: str, old: str, new: str) -> Path:
    path = root / f"berka/{table}.asc"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("table", "old", "new", "message"),
    [
        ("loan", '"status"', '"state"', "{f} has no column status (columns: loan_id, account_id, date, amount, dura"),
        ("district", '"A16"', '"A17"', "{f} has no column A16 (columns: A1, A2, A3"),
        ("trans", '"balance"', '"saldo"', "{f} has no column balance (columns: trans_id, account_id"),
        ("account", '"POPLATEK TYDNE"', '"WEEKLY"', "unknown frequency in line 2 of {f} 'WEEKLY' (known: POPLATEK M"),
        ("district", '"south Bohemia"', '"South Bohemia"', "unknown A3 in line 3 of {f} 'South Bohemia'; did you mean"),
        ("account", '"1";"2";', '"1";"99";', "district.asc of {d} has no district_id 99, which account.asc refers to"),
    ],
)
def test_damaged_tables(tmp_path: Path, table: str, old: str, new: str, message: str) -> None:
    put(tmp_path)
    path = change(tmp_path, table, old, new)
    with pytest.raises(FedchordError) as error:
        load("berka", tmp_path)
    start = "" if message.startswith("unknown") else "berka: "
    assert str(error.value).startswith(start + message.format(f=path, d=path.parent))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("status", "E", "unknown status in line 3 of {f} 'E' (known: A, B, C, D)"),
        ("date", "971301", "berka: {f} line 3, column date must be a date YYMMDD, got '971301'"),
        ("date", "soon", "berka: {f} line 3, column date must be a date YYMMDD, got 'soon'"),
        ("amount", "many", "berka: {f} line 3, column amount must be a finite number, got 'many'"),
        ("payments", "?", "berka: {f} line 3, column payments must be a finite number, got '?'"),
        ("account_id", "99999", "berka: account.asc of {d} has no account_id 99999, which loan.asc refers to"),
    ],
)
def test_bad_cells_of_a_loan(tmp_path: Path, column: str, cell: str, message: str) -> None:
    rows = put(tmp_path)["loan"]
    rows[1][HEADS["loan"].index(column)] = cell
    path = tmp_path / "berka/loan.asc"
    write(path, HEADS["loan"], rows)
    with pytest.raises(FedchordError) as error:
        load("berka", tmp_path)
    assert str(error.value) == message.format(f=path, d=path.parent)


@pytest.mark.parametrize(
    ("table", "name"),
    [("account", "account.asc"), ("order", "order.asc"), ("trans", "the transactions"), ("district", "district.asc")],
)
def test_a_table_cut_off_between_lines_is_missed_by_the_join(tmp_path: Path, table: str, name: str) -> None:
    rows = put(tmp_path)[table]
    write(tmp_path / f"berka/{table}.asc", HEADS[table], rows[: len(rows) // 2])
    with pytest.raises(FedchordError, match=rf"^berka: {name} of .*/berka has no \w+ \d+, which \w+.asc refers to$"):
        load("berka", tmp_path)


def test_a_table_cut_off_inside_a_line(tmp_path: Path) -> None:
    put(tmp_path)
    path = tmp_path / "berka/trans.asc"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(FedchordError, match=r"^berka: .*trans.asc line \d+ has \d cells, expected 10 \(it ends before"):
        load("berka", tmp_path)
    path.write_bytes(b"")
    with pytest.raises(FedchordError, match=r"trans.asc is damaged: it has no rows$"):
        load("berka", tmp_path)


def test_an_account_twice_and_a_district_without_numbers(tmp_path: Path) -> None:
    tables = put(tmp_path)
    write(tmp_path / "berka/account.asc", HEADS["account"], [tables["account"][0], *tables["account"]])
    with pytest.raises(FedchordError, match=r"account.asc line 3, column account_id repeats 1$"):
        load("berka", tmp_path)
    tables = put(tmp_path)
    tables["district"][8][12] = "?"
    write(tmp_path / "berka/district.asc", HEADS["district"], tables["district"])
    with pytest.raises(FedchordError, match=r"district.asc line 10, column A12 and A13 are both missing$"):
        load("berka", tmp_path)


@pytest.mark.parametrize("name", ["berka", "berka-leaking"])
def test_missing_tables(tmp_path: Path, name: str) -> None:
    put(tmp_path)
    for table in ("order", "trans"):
        (tmp_path / f"berka/{table}.asc").unlink()
    with pytest.raises(FedchordError) as error:
        load(name, tmp_path)
    assert str(error.value) == (
        f"{name}: missing berka/order.asc, berka/trans.asc in {tmp_path}; fedchord data get {name}, or get them "
        f"from {SOURCES[name].home} "
        f"and put the files into {tmp_path / 'berka'}"
    )


# -- before the loan -----------------------------------------------------------------------------------------------


def moved(tables: dict[str, list[list[str]]]) -> dict[str, list[list[str]]]:
    """The tables with transactions on days before, on and after the loan; the first loan has none before it."""
    granted = {loan[1]: loan[2] for loan in tables["loan"]}
    first = tables["loan"][0][1]
    for place, row in enumerate(tables["trans"]):
        day = granted.get(row[1], "970102")
        earlier, later = f"{int(day[:2]) - 1}{day[2:]}", f"{int(day[:2]) + 1}{day[2:]}"
        row[2] = (day, later)[place % 2] if row[1] == first else (earlier, day, later, earlier)[place % 4]
    return tables


def test_only_transactions_before_the_loan_against_sql(tmp_path: Path) -> None:
    tables = moved(put(tmp_path))
    write(tmp_path / "berka/trans.asc", HEADS["trans"], tables["trans"])
    data, leaking = load("berka-before", tmp_path), load("berka-leaking", tmp_path)
    early = dict(tables)
    granted = {loan[1]: int(loan[2]) for loan in tables["loan"]}
    early["trans"] = [row for row in tables["trans"] if int(row[2]) < granted.get(row[1], 0)]
    wanted = np.array([[np.nan if cell is None else cell for cell in row[2:]] for row in joined(early)], dtype=float)
    assert data.columns["x"].shape == wanted.shape == leaking.columns["x"].shape
    assert np.allclose(data.columns["x"].numpy(), wanted, rtol=1e-6, equal_nan=True)
    assert data.columns["x"][0, 10] == 0 and data.columns["x"][0, 11:13].isnan().all()
    assert torch.equal(data.columns["x"][:, :10], leaking.columns["x"][:, :10])
    assert not torch.equal(data.columns["x"][1:, 12], leaking.columns["x"][1:, 12])
    assert data.origin.endswith("Transactions before the loan only.") and "derived" not in data.origin


def test_what_comes_after_the_loan_changes_nothing(tmp_path: Path) -> None:
    tables = moved(put(tmp_path))
    write(tmp_path / "berka/trans.asc", HEADS["trans"], tables["trans"])
    before = load("berka-before", tmp_path).columns["x"]
    granted = {loan[1]: int(loan[2]) for loan in tables["loan"]}
    for row in tables["trans"]:
        if int(row[2]) >= granted.get(row[1], 0):
            row[5], row[6] = "7777.00", "-9999.00"
    write(tmp_path / "berka/trans.asc", HEADS["trans"], tables["trans"])
    assert torch.equal(load("berka-before", tmp_path).columns["x"].nan_to_num(-1), before.nan_to_num(-1))


def test_derived_aggregates_before_the_loan(tmp_path: Path) -> None:
    tables = put(tmp_path)
    stand_in(tmp_path, tables)
    path = tmp_path / "berka/trans_by_account.csv"
    with pytest.raises(FedchordError, match=r"berka-before: .* has no column derived_preloan_num_trans"):
        load("berka-before", tmp_path)
    lines = path.read_text().splitlines()
    known = [f"{line},{10 + i},{1000 + i}.5" if i % 2 else f"{line},," for i, line in enumerate(lines[1:])]
    path.write_text("\n".join([f"{lines[0]},derived_preloan_num_trans,derived_preloan_mean_balance", *known]) + "\n")
    data = load("berka-before", tmp_path)
    gaps = data.columns["x"].isnan()
    assert gaps[:, 11].all() and torch.equal(gaps[:, 10], gaps[:, 12]) and 0 < int(gaps[:, 10].sum()) < len(gaps)
    told = "The numbers on transactions are derived aggregates (trans_by_account.csv), not the original table."
    assert told in data.origin
    assert not federate(data, Natural(), seed=1).columns["x"].isnan().any()


# -- the real tables -----------------------------------------------------------------------------------------------


def real(root: Path, name: str = "berka"):
    found = status(SOURCES[name], root)
    if found != "present":
        pytest.skip(f"{name} under FEDCHORD_DATA: {found}")
    return load(name, root)


@pytest.mark.data
def test_real_counts_are_those_of_the_thesis(data_root: Path) -> None:
    data = real(data_root)
    sizes = torch.bincount(data.groups).double()
    assert (len(sizes), int(sizes.sum())) == (7, 621)
    assert float(sizes.mean()) == pytest.approx(88.71, abs=5e-3)
    assert float(sizes.std(correction=0)) == pytest.approx(24.78, abs=5e-3)
    bad = {region: int(data.columns["y"][data.groups == i].sum()) for i, region in enumerate(data.group_names)}
    regions = [region for region in REGIONS if region != "north Bohemia"]
    assert bad == dict(zip(regions, (7, 10, 9, 9, 9, 13, 18), strict=True))
    assert data.columns["x"].shape[1] == 14 and not data.columns["x"].isnan().any()
    assert real(data_root, "berka-leaking").columns["x"].shape[1] == 15
    made = federate(data, Natural(), seed=1)
    assert [len(made.columns["y"][made.test[c]].unique()) for c in range(7)] == [2] * 7


@pytest.mark.data
def test_real_gaps_of_the_balance_tell_of_the_status(data_root: Path) -> None:
    """Who lacks a mean balance is no matter of chance: late accounts, running loans only, half as many bad ones.

    The last of the three is no certain one (75 bad loans are few); the first two are.
    """
    real(data_root, "berka-leaking")
    path = data_root / "berka/trans_by_account.csv"
    if not path.is_file():
        pytest.skip("trans_by_account.csv is not under FEDCHORD_DATA: trans.asc has no gaps")
    folder = data_root / "berka"
    with path.open(newline="") as stream:
        gap = {row["account_id"]: row["derived_mean_balance"] == "" for row in csv.DictReader(stream)}
    with (folder / "account.asc").open(newline="") as stream:
        opened = {row["account_id"]: int(row["date"]) for row in csv.DictReader(stream, delimiter=";")}
    with (folder / "loan.asc").open(newline="") as stream:
        loans = [(row["account_id"], row["status"]) for row in csv.DictReader(stream, delimiter=";")]
    missing = [gap[account] for account, _ in loans]
    assert sum(missing) == 51
    assert roc_auc_score(missing, [opened[account] for account, _ in loans]) > 0.95
    counts = {
        status: [
            sum(m is lacks for m, (_, s) in zip(missing, loans, strict=True) if s in status) for lacks in (True, False)
        ]
        for status in ("AB", "CD", "BD", "AC")
    }
    assert counts == {"AB": [0, 234], "CD": [51, 397], "BD": [3, 73], "AC": [48, 558]}
    assert fisher_exact([counts["AB"], counts["CD"]]).pvalue < 1e-8
    assert 3 / 51 < 0.6 * 73 / 631
    assert fisher_exact([counts["BD"], counts["AC"]]).pvalue == pytest.approx(0.35, abs=0.01)


@pytest.mark.data
def test_real_balance_is_the_number_that_tells_most(data_root: Path) -> None:
    data = real(data_root, "berka-leaking")
    x, y = data.columns["x"], data.columns["y"]
    known = ~x.isnan()
    ranks = [abs(roc_auc_score(y[k], column[k]) - 0.5) for column, k in zip(x.T, known.T, strict=True)]
    assert int(np.argmax(ranks)) == berka.LEAKING
    assert ranks[berka.LEAKING] == pytest.approx(0.20, abs=0.02)


@pytest.mark.data
def test_real_tables_joined_by_sql(data_root: Path, tmp_path: Path) -> None:
    """The same join by SQL, with a made-up table of transactions, so that it can be done without trans.asc."""
    real(data_root)
    generator, tables = np.random.default_rng(0), {}
    (tmp_path / "berka").mkdir()
    for name in ("account", "district", "loan", "order"):
        shutil.copy(data_root / f"berka/{name}.asc", tmp_path / "berka")
        with (data_root / f"berka/{name}.asc").open(newline="") as stream:
            tables[name] = list(csv.reader(stream, delimiter=";"))[1:]
    tables["trans"] = [
        [
            str(i),
            loan[1],
            "970102",
            "VYDAJ",
            "",
            str(generator.integers(9999)),
            str(generator.integers(9999)),
            "",
            "",
            "",
        ]
        for i, loan in enumerate(tables["loan"] * 2)
    ]
    write(tmp_path / "berka/trans.asc", HEADS["trans"], tables["trans"])
    found = joined(tables)
    data = load("berka-leaking", tmp_path)
    assert len(found) == 621
    assert np.allclose(data.columns["x"].numpy(), np.array([row[2:] for row in found]), rtol=1e-6)
    assert data.columns["y"].tolist() == [row[1] for row in found]
