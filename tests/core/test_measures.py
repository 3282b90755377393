"""How metrics are printed."""

from gyral.core.measures import ACCURACY, MSE, SEQUENCE_ACCURACY, printed


def test_a_metric_is_printed_alike_everywhere() -> None:
    measures = (ACCURACY, SEQUENCE_ACCURACY, MSE)
    assert printed("val/accuracy", 0.28400001, measures) == "28.4 %"
    assert printed("test/accuracy_7_operators", 0.5, measures) == "50.0 %"
    assert printed("sequence_accuracy", 1.0, measures) == "100.0 %"
    assert printed("test/mse", 0.28400001, measures) == "0.2840"
    assert printed("test/loss", 0.28400001, measures) == "0.284"
