"""Different overrides have different directories, and earlier sweeps find theirs."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyral.config.groups import choices
from gyral.config.overrides import text
from gyral.config.resolvers import LONGEST_NAME, directory_name
from tests.helpers.running import invoke

# Few different signs, so that many texts differ only in what a name of a directory may lose.
VALUES = st.one_of(
    st.text("a/-~,='.é ", max_size=6),
    st.text("ab", min_size=250, max_size=252),
    st.text("字", min_size=60, max_size=90),
    st.sampled_from(choices("experiment")[:4]),
).map(lambda value: value if value.isalnum() else text(value))
OVERRIDES = st.dictionaries(st.sampled_from(["experiment", "task.corpus.path", "weights"]), VALUES, min_size=1)


@settings(deadline=None, max_examples=40)
@given(st.lists(OVERRIDES, min_size=2, max_size=8))
def test_different_overrides_have_different_names(jobs: list[dict[str, str]]) -> None:
    names = {",".join(f"{key}={value}" for key, value in sorted(job.items())) for job in jobs}
    named = {directory_name(overrides) for overrides in names}
    assert len(named) == len(names)
    for name in named:
        assert "/" not in name
        assert len(name.encode()) <= LONGEST_NAME


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("task.corpus.path=a/b.txt", "task.corpus.path=a-b.txt"),
        ("weights='x/y'", "weights='x-y'"),
        (f"x={'a/' * 100}", f"x={'a-' * 100}"),
        (f"x={'字' * 100}", f"x={'字' * 101}"),
    ],
)
def test_values_that_differ_in_a_slash_have_different_directories(one: str, other: str) -> None:
    assert directory_name(one) != directory_name(other)


def test_names_of_earlier_sweeps_stay() -> None:
    row = choices("experiment")[0]
    name = f"experiment={row},seed=1,model.cell.bias=false,task.delay=-3"
    assert directory_name(name) == name.replace("/", "-")
    long = "x=" + 100 * "ab"
    assert directory_name(long) == f"{long[:90]}~{hashlib.sha256(long.encode()).hexdigest()[:12]}"
    assert directory_name("") == "default"


def test_options_that_do_not_name_directories_do_if_a_sweep_varies_them(tmp_path) -> None:
    words = ("-m", "task=copy", "model=rnn", "task.monitor=val/nothing", f"hydra.sweep.dir={tmp_path}")
    outcome = invoke(*words, "logger=none,csv", "paths.data_dir=a")
    failed = [line.split(":")[0] for line in outcome.out.splitlines() if line.startswith("FAILED ")]
    assert len(set(failed)) == 2, outcome.out
    assert all("data_dir" not in name for name in failed)


@pytest.mark.parametrize(
    ("axis", "reason"),
    [
        ("seed=range(0)", "has no values, so that the sweep has no job"),
        ("seed=range(3,1)", "has no values, so that the sweep has no job"),
        ("model=glob(zzz*)", "matches none of "),
        ("task.delay=glob(z*)", "has no values; glob() is for choices of groups"),
        ("seed=choice()", "cannot be parsed"),
    ],
)
@pytest.mark.named("sweep=tune-seed=range(0)-*", "sweep=tune-model=glob(zzz*)-*", "-m-*")
@pytest.mark.parametrize("sweep", ["-m", "sweep=tune"])
def test_sweeps_without_a_job_are_refused(axis: str, reason: str, sweep: str, tmp_path) -> None:
    error = invoke(sweep, "task=copy", axis, f"hydra.sweep.dir={tmp_path}").error
    assert error.startswith(f"{axis}: {reason}")
    assert not list(tmp_path.iterdir())
