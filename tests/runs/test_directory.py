"""What a run directory says of itself."""

import json
from pathlib import Path

from tests.helpers.running import SMALL_COPY, invoke


def test_a_start_that_came_to_nothing_leaves_no_false_provenance(tmp_path: Path) -> None:
    where = f"hydra.run.dir={tmp_path}"
    assert invoke(*SMALL_COPY, "model=rum", "model.backend=fused", "model.cell.lambd=0.5", where).status == 1
    (tmp_path / "git.diff").write_text("changes of the first start")
    first = json.loads((tmp_path / "provenance.json").read_text())

    assert invoke(*SMALL_COPY, "model=gru", where).status == 0
    second = json.loads((tmp_path / "provenance.json").read_text())
    assert "model=gru" in second["command"]
    assert "model=gru" in (tmp_path / "overrides.yaml").read_text()
    assert second["id"] == first["id"]
    diff = tmp_path / "git.diff"
    assert not diff.exists() or "changes of the first start" not in diff.read_text()
