"""From folders to a party's own model: nodes opened from their files end with what a simulation over all rows gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.invoked import invoke
from helpers.parties import NAMES, cut, table, write

from fedchord.check import FedchordError
from fedchord.experiments.config import RunConfig
from fedchord.experiments.predict import as_csv, predict_file
from fedchord.experiments.run import execute
from fedchord.remote.agreed import make_plan
from fedchord.remote.attending import open_node
from fedchord.remote.direct import Direct
from fedchord.remote.facts import facts_of
from fedchord.remote.init import init
from fedchord.remote.predicting import predict_at
from fedchord.remote.serve import serve
from fedchord.remote.settings import read_fed, read_party

pytest.importorskip("cryptography", reason="cryptography is not installed: no certificates are made")

RUN = ["method=superfed-mm", "rounds=3", "cohort=all", "seed=3", "model=logreg", "lr=0.1"]
KEYS = ["data.label=outcome", "data.category=code"]


def test_a_party_predicts_what_the_simulation_would_for_it(tmp_path: Path) -> None:
    rows = table()
    folder = tmp_path / "fed"
    init(folder, NAMES, [*RUN, *KEYS])
    cut(folder, rows)
    parties = [read_party(folder / name / "node.toml") for name in NAMES]
    files = [party.folder / "facts.json" for party in parties]
    for party, file in zip(parties, files, strict=True):
        facts_of(party, share=("rows",)).save(file)
    fed = read_fed(folder / "server" / "fed.toml")
    make_plan(fed, files)
    new = write(tmp_path / "new.csv", [row for row in table(seed=9) if row["client"] == "north"], list(rows[0])[:4])
    with pytest.raises(FedchordError) as caught:
        predict_at(parties[1], new)  # it has taken no part yet
    assert "\n" not in str(caught.value)

    nodes = {party.client: open_node(party) for party in parties}
    summary = serve(nodes[0].plan, Direct(nodes), fed.out).finish()

    whole = write(tmp_path / "all.csv", rows)
    simulated = execute(
        RunConfig.from_pairs([*RUN, *KEYS, f"data={whole}", "executor=serial", f"out={tmp_path / 'run'}"])
    )
    assert summary["per_client"]["auroc"] == simulated["per_client"]["auroc"]
    answers = set()
    for party in parties:
        expected = as_csv(*predict_file(tmp_path / "run", new, party.name))
        assert as_csv(*predict_at(party, new)) == expected
        answers.add(expected)
    assert len(answers) == 3  # every party has a model of its own
    done = invoke("predict", str(parties[2].path), str(new))
    assert done.exit_code == 0 and expected in done.output
    done = invoke("predict", str(parties[2].path), str(new), "--client", "north")
    assert "a party has one model" in str(done.exception)
