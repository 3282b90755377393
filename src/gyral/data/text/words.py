"""Words of text in any script, for measures that compare words."""

import re
import unicodedata

# Scripts that write no spaces between words: Han, Hiragana, Katakana, Thai, Lao, Burmese, Khmer.
_UNSPACED = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
)


def unicode_words(text: str) -> list[str]:
    """Return the words of a text, without case and compatibility forms, see Unicode's NFKC.

    A word is a sequence of letters, digits and the marks on them. In scripts without spaces between words, such as
    Chinese, Japanese and Thai, each letter with its marks is a word.
    """
    words: list[str] = []
    within = False  # whether the next letter continues the last word
    for sign in unicodedata.normalize("NFKC", text).casefold():
        kind = unicodedata.category(sign)[0]
        if kind == "M" and words:
            words[-1] += sign
        elif kind not in "LN":
            within = False
        elif _UNSPACED.match(sign):
            words.append(sign)
            within = False
        elif within:
            words[-1] += sign
        else:
            words.append(sign)
            within = True
    return words


def has_unspaced_script(text: str) -> bool:
    """Return whether a text has letters of a script without spaces between words."""
    return _UNSPACED.search(text) is not None
