"""Files in the format of their suffix."""

from pathlib import Path

import pytest

from gyral.reports.render import html
from tests.helpers.running import invoke


def test_the_suffix_selects_the_format(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_draw", lambda section: iter(()))  # test_html.py draws figures, which takes long
    names = [tmp_path / f"new/report{suffix}" for suffix in (".md", ".tex", ".csv", ".html")]
    outcome = invoke(f"sweep={runs}", f"save=[{','.join(map(str, names))}]", entry="report")
    assert outcome.status == 0, outcome.err
    for path in names:
        assert f"Wrote {path}\n" in outcome.out
        assert "GRU" in path.read_text()
    (tmp_path / "file").write_text("")
    error = invoke(f"sweep={runs}", f"save={tmp_path}/file/report.md", entry="report").error
    assert error.startswith(f"{tmp_path}/file")
