"""The command `gyral`: its help and tab completion."""

import subprocess
from pathlib import Path

import pytest

from gyral import __main__ as program
from tests.helpers.composing import each_once
from tests.helpers.running import as_a_process, choices, spawn


def complete(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the words that tab completion offers at the end of a line."""
    monkeypatch.setenv("COMP_LINE", line)
    with as_a_process(["/bin/gyral", "-sc", "query=bash"]) as (out, _), each_once():
        program.main()
    return out.getvalue().split()


@pytest.mark.parametrize(
    ("line", "offered", "absent"),
    [
        ("gyral tr", ["train", "fetch"], ["model="]),
        ("gyral train model=r", [f"model={name}" for name in choices("model")], ["model=_base"]),
        (
            "gyral train seed=1 experiment=rum_paper/t",
            ["experiment=rum_paper/table1/gru"],
            ["experiment=rum_paper/table1/_protocol"],
        ),
        ("gyral train model=rum model.cell.lam", ["model.cell.lambd="], ["model.cell.hidden_size="]),
        ("gyral train trainer.max", ["trainer.max_steps="], []),
        ("gyral train w", ["weights="], ["model="]),
        ("gyral evaluate s", ["split="], ["seed=", "run="]),
        ("gyral predict ", ["run=", "data=", "save="], ["seed="]),
        ("gyral fetch p", [], ["model="]),
    ],
)
def test_tab_completion(line: str, offered: list[str], absent: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = complete(line, monkeypatch)
    assert set(offered) <= set(words)
    assert not set(absent) & set(words)


NAMES = ("$(touch${IFS}canary)", "`touch${IFS}canary`", "<(touch${IFS}canary)", "x$((1+1))", "a'b", 'a"b', "{1,2}", "*")


@pytest.mark.parametrize("line", ["gyral train model=", "gyral train +mine@", "gyral report sweep=", "gyral train ./"])
def test_the_shell_executes_no_name_that_it_completes(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("conf/model", "conf/mine", "."):
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in (*NAMES, "plain"):
            Path(folder, f"{name}.yaml").write_text("{}", encoding="utf-8")
    words = complete(line, monkeypatch)
    assert not [word for word in words if set(word) & set("$`(){}<>'\"*;&|!?[]#")]
    assert ("model=plain" in words) == line.endswith("model=")
    before = set(tmp_path.rglob("*"))
    subprocess.run(["bash", "-c", 'compgen -W "$1" -- ""', "bash", " ".join(words)], capture_output=True, check=False)
    assert set(tmp_path.rglob("*")) == before


def test_tab_completion_is_installed_for_the_command() -> None:
    with as_a_process(["/bin/gyral", "-sc", "install=bash"]) as (out, _):
        program.main()
    assert out.getvalue().rstrip().endswith("-F hydra_bash_completion gyral")
    subprocess.run(["bash", "-n"], input=out.getvalue(), text=True, check=True)


def test_help_lists_the_commands_without_importing_them() -> None:
    code = "import sys; from gyral.__main__ import main; main(); print({'hydra', 'torch'} & set(sys.modules))"
    outcome = spawn("-c", code)
    assert all(f"\n  {name} " in outcome.out for name in program.COMMANDS)
    assert 'eval "$(gyral -sc install=bash)"' in outcome.out
    assert outcome.out.endswith("set()\n")


def test_an_unknown_command_is_one_line() -> None:
    outcome = spawn("-m", "gyral", "trian")
    assert outcome.error == f"trian: did you mean train? must be one of {', '.join(program.COMMANDS)}"


@pytest.mark.parametrize("word", ["help", "--help", "-h"])
def test_help_has_three_names(word: str) -> None:
    with as_a_process(["/bin/gyral", word]) as (out, _):
        program.main()
    assert out.getvalue() == program.HELP
