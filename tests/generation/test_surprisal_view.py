"""Colors and signs of the views of surprisal."""

import pytest

from gyral.generation import surprisal_view


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("colors", "order"), [(surprisal_view.LIGHT, -1), (surprisal_view.DARK, 1)])
def test_colors_can_be_read_and_grow_stronger(colors: tuple[tuple[str, str], ...], order: int) -> None:
    assert len(colors) == len(surprisal_view.LIMITS)
    backgrounds = [luminance(background) for background, _ in colors]
    assert [order * value for value in backgrounds] == sorted(order * value for value in backgrounds)
    for background, letters in colors:
        dark, light = sorted((luminance(background), luminance(letters)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # what WCAG asks of text


def test_control_characters_do_not_reach_a_terminal_or_a_page() -> None:
    text = "a\x1b[31m\x00\x7f\x9b\r\tb"
    surprisals = [surprisal_view.Surprisal(symbol, symbol, 1.5, ()) for symbol in text]
    assert "".join(piece.shown for piece in surprisal_view.mark_texts(surprisals, "char")) == "a␛[31m␀��␍\tb"


def test_the_mean_of_improbable_symbols_is_printed() -> None:
    mean = surprisal_view.MeanSurprisal("char")
    list(mean.count([surprisal_view.Surprisal("a", "a", bits, ()) for bits in (1000.0, 1100.0)]))
    assert str(mean).startswith("mean 1050.000 bits a character, perplexity inf, over 2 characters")
