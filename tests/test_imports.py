"""What a run of a core task imports."""

import json
from pathlib import Path

from tests.helpers.running import spawn

MOST_MODULES = 110
SCRIPT = """
import json, sys
from gyral.train import main
main()
print(json.dumps([name for name in sys.modules if name.partition('.')[0] == 'gyral']))
"""


def test_the_copying_task_imports_no_application_and_few_modules(tmp_path: Path) -> None:
    sizes = ("task.train_size=64", "task.val_size=8", "task.test_size=8")
    words = ("model=rum", "task=copy", "trainer.max_steps=2", *sizes)
    outcome = spawn("-c", SCRIPT, *words, "logger=none", "callbacks=none", f"hydra.run.dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    modules = json.loads(outcome.out.splitlines()[-1])
    assert not [name for name in modules if name.startswith("gyral.applications")]
    assert len(modules) <= MOST_MODULES
