"""Packages that take long to import, which the library does without where they are not used."""

import subprocess
import sys

CODE = """
import sys, torch, gyral, gyral.core.html, gyral.generation.memory_page
gyral.DeltaNet(2, 4)(torch.zeros(3, 1, 2))
print(*{"fla", "triton", "gyral.ops.delta.fla", "jinja2"} & set(sys.modules))
"""


def test_layers_on_a_cpu_and_modules_of_pages_import_no_further_package() -> None:
    # torch imports jinja2 for its compiler alone
    found = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
