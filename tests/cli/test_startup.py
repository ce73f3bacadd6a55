"""How fast a run begins is a matter of what it imports, which can be counted."""

from __future__ import annotations

import json
import subprocess
import sys

OTHERS = ("IPython", "PIL", "cryptography", "flwr", "matplotlib", "networkx", "onnx", "pandas", "requests", "scipy")
OTHERS += ("sklearn", "sympy", "tensorboard", "torch._dynamo", "torch._inductor", "torchvision")
OURS = ("export", "remote", "report.page", "synthetic.features", "synthetic.inception", "synthetic.quality", "thesis")
NEVER = (*OTHERS, *(f"fedchord.{room}" for room in OURS))
"""What a plain run on digits has no use for."""
RUN = """
import contextlib, io, json, runpy, sys
import torch
before = set(sys.modules)
sys.argv = ["fedchord", "run", "rounds=1", "clients=5", "cohort=2"]
with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
    runpy.run_module("fedchord", run_name="__main__")
assert "fedavg: Plain()" in said.getvalue(), said.getvalue()
print(json.dumps([sorted(before), sorted(sys.modules)]))
"""


def imported(code: str) -> tuple[set[str], set[str]]:
    """The modules after `import torch`, and after a whole run."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout.splitlines()[-1])
    return set(before), set(after)


def test_a_run_on_digits_imports_what_it_needs():
    before, after = imported(RUN)
    assert not [name for name in NEVER if name in after]
    more = sorted(name for name in after - before if name.partition(".")[0] == "torch")
    assert not more  # nothing of torch but what `import torch` brings
    others = {name.partition(".")[0] for name in after - before} - {*sys.stdlib_module_names, "fedchord"}
    assert {name for name in others if not name.startswith("_")} <= {
        *("annotated_doc", "click", "markdown_it", "mdurl", "numpy", "pygments", "rich", "safetensors"),
        *("shellingham", "tomli_w", "typer", "typing_extensions"),
    }
