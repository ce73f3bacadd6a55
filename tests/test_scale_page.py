"""The page about scale: operations and bytes of models by hand, and the tables that stand there."""

from __future__ import annotations

import pytest
import torch
from helpers.site import script as loaded
from torch import nn


@pytest.fixture(scope="module")
def script():
    return loaded("measure_scale")


def test_operations_and_bytes_by_hand(script):
    found = script.cost("twonn")
    weights = [784 * 200, 200 * 200, 200 * 10]
    assert found.parameters == sum(weights) + 410
    assert found.flops == 2 * (2 * sum(weights) + sum(weights[1:]))  # the first layer has no slope of its inputs
    assert (found.plain, found.half) == (4 * found.parameters, 2 * found.parameters)
    assert found.packed == found.parameters + -(-found.parameters // 64)
    assert found.visit == 500 * found.flops / script.SPEED
    assert found.cores(125e6, found.plain) == pytest.approx(0.014653 * 125e6 / 796_840, rel=1e-3)
    with torch.device("meta"):
        conv = nn.Conv2d(3, 8, 3, padding=1)
    assert script.operations(conv, (3, 16, 16)) == 2 * 2 * (16 * 16) * (8 * 3 * 9)


def test_the_page_holds_what_the_script_counts(script):
    text = script.PAGE.read_text()
    names = ["logreg", "twonn", "smallconv"]
    for line in script.tables([script.cost(name) for name in names]).splitlines():
        assert line in text.splitlines(), line
    assert all(text.count(f"\n| {name} |") == 2 for name in script.MODELS)
    assert script.written(text, "new").count("new\n<!-- end -->") == 1
