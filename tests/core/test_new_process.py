"""What only a new process shows, all in one: to import torch takes seconds."""

from importlib.util import find_spec
from pathlib import Path

from tests.helpers.running import spawn

LATE_IMPORTS = """
import sys, torch, gyral, gyral.core.html, gyral.generation.memory_page
gyral.DeltaNet(2, 4)(torch.zeros(3, 1, 2))
print("imported:", *{"fla", "triton", "gyral.ops.delta.triton", "jinja2"} & set(sys.modules))
"""
WITHOUT_AVX512 = """
layer = gyral.LSTM(5, 7)
expected, _ = layer(inputs := torch.randn(9, 4, 5))
with torch.autocast("cpu", torch.bfloat16):
    outputs, _ = layer(inputs)
outputs.sum().backward()
torch.testing.assert_close(outputs, expected, rtol=0.02, atol=0.02)
"""
SLOW_PACKAGES = ("torch._dynamo", "scipy", "matplotlib", "pandas", "pyarrow", "triton", "wandb")
MOST_MODULES = 2350  # of all packages, of a run; Python 3.13 has more than 3.11
RUN = f"""
words = ["task=copy", "task.delay=3", *(f"task.{{split}}_size=4" for split in ("train", "val", "test"))]
words += ["logger=none", "trainer.max_steps=1", "task.batch_size=4", "trainer.accelerator=cpu"]
gyral.fit(gyral.compose(words), sys.argv[1])
print("imported:", *set({SLOW_PACKAGES}) & set(sys.modules))
print("modules:", len(sys.modules))
import scipy.signal, torchmetrics
torch.compile(torch.nn.Linear(1, 1), backend="eager")(torch.zeros(1, 1))
print("imported:", scipy.signal.__file__ is not None, "torch._dynamo" in sys.modules)
"""
COMPILED_KERNELS = """
from tests.helpers import ahead_of_time
ahead_of_time.main("sample")
"""


def test_a_new_process(tmp_path: Path) -> None:
    """Four checks.

    * Layers on a CPU and modules of pages import no package that takes long. torch imports jinja2 for its compiler.
    * `LSTM` runs under autocast on a processor without AVX512, for which oneDNN raises an error in torch.nn.LSTM.
    * A run imports no package before it needs it, and the packages that Lightning would import can be used later.
    * RUM's Triton kernels compile for a GPU, which the interpreter does not show.
    """
    has_triton = find_spec("triton") is not None
    code = LATE_IMPORTS + RUN + WITHOUT_AVX512 + COMPILED_KERNELS * has_triton
    variables = {"ONEDNN_MAX_CPU_ISA": "AVX2", "TRITON_INTERPRET": None, "TRITON_CACHE_DIR": str(tmp_path)}
    outcome = spawn("-c", code, tmp_path / "run", **variables)
    assert outcome.status == 0, outcome.err
    lines = [line for line in outcome.out.splitlines() if line.startswith(("imported:", "modules:"))]
    compiled = outcome.out.splitlines()[-2 * has_triton :] if has_triton else []
    assert lines[0].split() == ["imported:"]
    assert lines[1].split() == ["imported:"]
    assert 1000 < int(lines[2].split()[1]) < MOST_MODULES
    assert lines[3].split() == ["imported:", "True", "True"]
    sizes = [int(line.rpartition(" ")[2]) for line in compiled]
    assert len(sizes) == 2 * has_triton
    assert all(size > 10_000 for size in sizes)
