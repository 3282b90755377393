"""Dashboards of Weights & Biases, without a server."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gyral.core.escaping import escape_markdown
from gyral.reports import catalogue, wandb_dashboards
from tests.helpers.running import invoke

interface = pytest.importorskip("wandb_workspaces.reports.v2.interface")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Answer the one question that a report asks the server, which id the project has; no key is at hand."""
    monkeypatch.setattr(interface, "_get_api", lambda: None)
    monkeypatch.setattr(interface, "execute_graphql", lambda *_, **__: {"project": {"internalId": "1"}})
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))


def spec_of(model: Any) -> dict[str, Any]:
    return json.loads(model.model_dump_json(by_alias=True, exclude_none=True))


def test_the_workspace_groups_curves_by_cell_and_task_and_shows_the_system() -> None:
    spec = spec_of(wandb_dashboards.make_workspace("entity", "gyral")._to_model())
    section = spec["spec"]["section"]
    assert section["settings"]["xAxis"] == "steps"
    assert [group["name"] for group in section["runSets"][0]["grouping"]] == [
        "group",
        "task_name.value",
        "model_name.value",
    ]
    panels = {
        section["name"]: [panel["config"] for panel in section["panels"]]
        for section in spec["spec"]["section"]["panelBankConfig"]["sections"]
    }
    own = panels["Learning curves by sweep, task and model"]
    assert not any("groupBy" in panel for panel in own), "these panels follow the list of runs"
    assert {"train/learning_rate", "train/gradient_norm"} < {panel["metrics"][0] for panel in own}
    assert {panel["groupBy"] for panel in panels["Learning curves by cell"]} == {"cell_name.value"}
    assert {panel["groupBy"] for panel in panels["Learning curves by task"]} == {"task_name.value"}
    assert ["val/accuracy"] in [panel["metrics"] for panel in panels["Learning curves by cell"]]
    sizes = panels["Parameters against score"]
    assert {panel["xAxis"] for panel in sizes} == {"config:parameters.value"}
    assert "summary:test/bits" in [panel["yAxis"] for panel in sizes]
    assert any(panel["metrics"][0].startswith("system/gpu") for panel in panels["System"])


@pytest.mark.named("adding", "grazzi_paper_table3", "rum_paper_table1", "rum_paper_table3")
@pytest.mark.parametrize("name", [sweep.name for sweep in catalogue.named()])
def test_every_table_has_a_report_of_its_own_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = catalogue.load(name)
    spec = spec_of(wandb_dashboards.make_report("entity", "gyral", sweep)._to_model().spec)
    text = json.dumps(spec, ensure_ascii=False)
    for experiment, paper in sweep.papers.items():
        assert f'"{experiment}"' in text
        has_value = not paper.keys().isdisjoint((sweep.measure, *sweep.also, "parameters", "finding"))
        row = json.dumps(escape_markdown(paper["row"]), ensure_ascii=False)[1:-1]
        assert row in text or not has_value
    grids = [block for block in spec["blocks"] if block["type"] == "panel-grid"]
    assert len(grids) == 3
    for grid in grids:
        places = [tuple(panel["layout"].values()) for panel in grid["metadata"]["panelBankSectionConfig"]["panels"]]
        assert len(set(places)) == len(places), "panels overlap"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "project=gyral: needs a key of Weights & Biases: set WANDB_API_KEY, or run `wandb login`"),
        (["sweep=nothing"], "sweep=nothing: must be one of "),
        (["projects=x"], "projects: no such option; did you mean project? allowed: sweep, project, entity"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], expected: str) -> None:
    assert invoke(*arguments, entry="dashboard").error.startswith(expected)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    error = invoke(entry="dashboard").error
    assert error == "gyral dashboard: needs the package wandb_workspaces: pip install 'gyral[dashboard]'"


def test_the_addresses_of_saved_pages_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    workspaces = pytest.importorskip("wandb_workspaces.workspaces")
    saved = []
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    for kind in (workspaces.Workspace, interface.Report):
        monkeypatch.setattr(kind, "save", lambda dashboard: saved.append(dashboard))
        monkeypatch.setattr(kind, "url", property(lambda dashboard: f"https://wandb.ai/{dashboard.project}"))
    sweep = catalogue.named()[0]
    printed = invoke("entity=me", f"sweep={sweep.name}", entry="dashboard").out.splitlines()
    assert printed == ["https://wandb.ai/gyral"] * 2
    assert [dashboard.entity for dashboard in saved] == ["me", "me"]
    assert saved[1].title == sweep.title


def test_the_help_names_the_required_package() -> None:
    assert "wandb-workspaces" in invoke("--help", entry="dashboard").out
