"""What a run of a core task imports."""

import json
from pathlib import Path

from tests.faults import forks
from tests.helpers.found import at_least
from tests.helpers.running import SMALL_COPY

FEWEST_MODULES, MOST_MODULES = 80, 110
PACKAGES = ("src", "gyral", "hydra", "hydra_plugins", "omegaconf")
SCRIPT = """
import json, runpy, sys
runpy.run_module("src.train", run_name="__main__", alter_sys=True)
print(json.dumps([name for name in sys.modules if name.partition('.')[0] == 'gyral']))
"""


def test_the_copying_task_imports_no_application_and_few_modules(tmp_path: Path) -> None:
    words = ["model=rum", *(word for word in SMALL_COPY if "callbacks" not in word), "callbacks=none"]
    words.append(f"hydra.run.dir={tmp_path / 'run'}")
    outcome = forks.import_anew(SCRIPT, *words, packages=PACKAGES, directory=tmp_path)
    assert outcome.status == 0, outcome.err
    assert "baseline beaten" in outcome.out
    assert (tmp_path / "run" / "DONE").is_file()
    modules = at_least(FEWEST_MODULES, json.loads(outcome.out.splitlines()[-1]))
    assert not [name for name in modules if name.startswith("gyral.applications")]
    assert len(modules) <= MOST_MODULES
