"""Heart disease: is there any, by 13 findings, in four hospitals, which are the clients (Detrano et al., 1989).

Licence: CC BY 4.0 (UCI). Source: the UCI repository, data set 45; only the four `processed` files are read. They hold
14 columns without a header, with `?` for a missing value; their MD5 sums are in `MD5`, and files with other sums load
and are told in `origin`.

15 features: age, sex, resting blood pressure, cholesterol, fasting blood sugar, maximum heart rate, exercise angina,
oldpeak, and one column per category of chest pain (1 to 4) and resting ECG (0 to 2). The lists of categories are fixed,
so that the width does not depend on who has met which category. slope, ca and thal, which three of the four hospitals
hardly have, are left out, as in the thesis. The label is 1 for any disease (1 to 4).

Every client scales all features with its own training rows (`standardise`), and a missing value becomes the mean of
these rows; a missing category thus is the client's frequencies. (The thesis' code takes means over all rows of a
hospital, test rows too, and rounds the mean of a category down to a whole number.) Cholesterol is 0 in all rows of
Switzerland and in some of Long Beach, which is a gap in truth; it is kept as it is, as in the thesis.

303 + 294 + 123 + 200 = 920 rows, of which 139 + 106 + 115 + 149 = 509 are ill. The thesis gives no counts, only four
clients. FLamby leaves out rows with gaps and has 740.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch

from fedchord.core.inputs import Block
from fedchord.data.features import Feature
from fedchord.data.federation import DataSet
from fedchord.data.formats.table import Row, md5, read_rows
from fedchord.data.source import Source

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal", "num"),
)
CODES: dict[str, tuple[int, ...]] = {
    "sex": (0, 1),
    "cp": (1, 2, 3, 4),
    "fbs": (0, 1),
    "restecg": (0, 1, 2),
    "exang": (0, 1),
    "num": (0, 1, 2, 3, 4),
}
NUMBERS = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
ONE_HOT = ("cp", "restecg")
FEATURES = (
    *(Feature(column) for column in NUMBERS),
    *(Feature(column, tuple(str(code) for code in CODES[column])) for column in ONE_HOT),
)
BLOCKS = (
    *(Block(place, place + 1, none=True) for place, column in enumerate(NUMBERS) if column in CODES),
    Block(8, 12),
    Block(12, 15),
)
"""sex, fasting blood sugar and exercise angina; chest pain; resting ECG."""
USUAL = (
    (54.0, 0.5, 130.0, 220.0, 0.2, 140.0, 0.4, 1.0, *[0.25] * 4, *[0.33] * 3),
    (9.0, 0.5, 20.0, 60.0, 0.4, 25.0, 0.5, 1.0, *[0.43] * 4, *[0.47] * 3),
)
"""Centres and spreads of the features among patients who are examined for heart disease, in round numbers and not found
from these rows: for runs that must not look at them."""
MD5 = {
    "cleveland": "2d91a8ff69cfd9616aa47b59d6f843db",
    "hungarian": "22e96bee155b5973568101c93b3705f6",
    "switzerland": "9a87f7577310b3917730d06ba9349e20",
    "va": "4249d03ca7711e84f4444768c9426170",
}


def _load(root: Path) -> DataSet:
    """Rows of 15 numbers, NaN where a value is missing; clients are the hospitals."""
    x, y, groups, other = [], [], [], []
    for number, hospital in enumerate(HOSPITALS):
        path = SOURCE.locate(root, _file(hospital))
        other += [path.name] if md5(path) != MD5[hospital] else []
        for row in read_rows("heart", path, COLUMNS, header=False):
            label = row.code("num", CODES["num"])
            x.append(_features(row))
            y.append(int(label != 0))
            groups.append(number)
    features = torch.tensor(x, dtype=torch.float32)
    told = f" Not the official files by their MD5 sums: {', '.join(other)}." if other else ""
    return DataSet(
        "heart",
        {"x": features, "y": torch.tensor(y)},
        2,
        groups=torch.tensor(groups),
        group_names=HOSPITALS,
        origin=SOURCE.origin(len(y), 0) + told,
        scaled=torch.ones(sum(feature.width for feature in FEATURES), dtype=torch.bool),
        usual=torch.tensor(USUAL),
        blocks=BLOCKS,
        class_names=("healthy", "ill"),
        features=FEATURES,
    )


def _features(row: Row) -> list[float]:
    found = []
    for column in NUMBERS:
        found.append(row.number(column, "?"))
        if column in CODES:
            row.code(column, CODES[column], "?")
    for column in ONE_HOT:
        code = row.code(column, CODES[column], "?")
        found += [math.nan if code is None else float(code == known) for known in CODES[column]]
    return found


def _file(hospital: str) -> str:
    return f"heart_disease/processed.{hospital}.data"


SOURCE = Source(
    name="heart",
    title="UCI heart disease by hospital, 15 features",
    licence="CC BY 4.0",
    home="https://archive.ics.uci.edu/dataset/45/heart+disease",
    load=_load,
    classes=2,
    natural=True,
    table=True,
    rows=920,
    files=tuple((_file(hospital),) for hospital in HOSPITALS),
)
