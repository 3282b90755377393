"""Titles of figures."""

from gyral.reports.figures.common import describe_model
from tests.helpers.running import compose_config


def test_a_title_tells_the_options_that_are_not_defaults() -> None:
    def described(*overrides: str) -> str:
        return describe_model(compose_config(*overrides).model)

    assert described("model=gru", "model.cell.hidden_size=7") == "SequenceModel(cell=GRUCell(hidden_size=7))"
    assert described("model=rum", "model.num_layers=3", "model.cell.hidden_size=7", "model.cell.eta=1.0") == (
        "SequenceModel(cell=RUMCell(hidden_size=7, eta=1.0), num_layers=3)"
    )
    assert described("model=external", "model.cell.options={bias: false}") == (
        "SequenceModel(cell=ExternalCell(hidden_size=100, options={'bias': False}))"
    )
    assert described("model=fs_rum", "model.cell.hidden_size=7").endswith("slow=RUMCell(eta=1.0, layer_norm=True)))")
