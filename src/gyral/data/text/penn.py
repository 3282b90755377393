"""Tokenization and sentence splitting of English text in the style of the Penn Treebank."""

import re
from collections.abc import Iterable

# Penn Treebank tokens for punctuation marks. £ becomes # and € becomes $, as in the tokenizer of See et al. (2017).
SIGNS = {
    **{"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"},
    **{"“": "``", "„": "``", "«": "``", "”": "''", "»": "''", '"': "''", "‘": "`", "’": "'"},
    **{"–": "--", "—": "--", "―": "--", "…": "...", "£": "#", "€": "$"},
}
OPENING = ("-lrb-", "-lsb-", "-lcb-", "``", "`")
CLOSING = ("-rrb-", "-rsb-", "-rcb-", "''", "'")
ENDS = (".", "!", "?", "...")

# A period after these abbreviations is part of the token; after abbreviations of the second list, only before a number.
ABBREVIATIONS = (
    "mr|mrs|ms|messrs|dr|prof|sen|sens|rep|reps|gov|gen|col|capt|lt|sgt|cpl|maj|adm|cmdr|rev|hon|pres|supt|insp|st|sr|"
    "jr|bros|inc|ltd|co|corp|vs|etc|ave|blvd|jan|feb|aug|sept|oct|nov|dec|ala|ariz|calif|colo|conn|fla|kan|mich|minn|"
    r"okla|tenn|tex|wis|ph\.d|e\.g|i\.e"
)
BEFORE_NUMBERS = "no|nos|art|fig|p|pp|mar|apr|jun|jul|sep"

# Words that start with an apostrophe that is not a quotation mark.
ELIDED = r"(?:s|m|d|re|ve|ll|em|til|tis|twas|n|cause|bout|\d0s)\b"

_CONTROL = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u200b-\u200f\u2028-\u202e\u2060\ufeff\ufffd\ud800-\udfff]"
)
_SOFT = re.compile("\u00ad")  # soft hyphens are removed: they only mark possible line breaks
_OPENING_QUOTE = re.compile(r"""(?<![^\s(\[{\-–—/`'])"(?=\S)""")
_OPENING_APOSTROPHE = re.compile(rf"(?i)(?<![^\s(\[{{\-–—/`\"])['‘](?=[^\s'])(?!{ELIDED})")
_CONTRACTION = re.compile(r"(?i)(?<=[^\W_])(n't|'(?:s|m|d|re|ve|ll))(?![^\W_])")
_JOINED = re.compile(r"(?i)\b(can)(not)\b|\b(gon|wan)(na)\b|\b(got)(ta)\b")
_TOKEN = re.compile(
    rf"""
    (?:https?://|www\.)[^\s<>"]*[\w/]                 # addresses
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+
    | \w[\w-]*(?:\.[\w-]+)*\.(?:com|org|net|gov|edu|info|tv|co\.uk|org\.uk|gov\.uk|ac\.uk)\b
    | @\w+ | \#[^\W\d_]\w*
    | -[lr][rsc]b-                                    # marks that are already tokens of the Treebank
    | ``|''|\.\.\.|--|\*+|°[cf]\b
    | '(?:{ELIDED})                                   # the second part of a contraction, and elided words
    | n't\b
    | (?:[^\W\d_]\.){{2,}}(?:(?:-\w+)+|(?!\w))        # u.s. u.s.-led
    | (?:{ABBREVIATIONS})\.(?!\w)
    | (?:{BEFORE_NUMBERS})\.(?=\s*\d)
    | [^\W\d_]\.(?=\s+[^\W\d_])                       # an initial
    | \d+(?:[.,:/]\d+)+(?:-[\w-]*\w)?                 # 1,200 10:30 1/2 2.5-inch
    | \.\d+
    | \w+(?:(?:[-&]|/(?!\d)|'(?=[^\W\d_]{{2}}))\w+)*  # words, also with hyphens, at&t, and/or, o'malley
    | \S
    """,
    re.VERBOSE | re.IGNORECASE,
)


def tokenize(text: str, lower: bool = True) -> list[str]:
    """Return the words and punctuation marks of a text, in lower case unless `lower` is False.

    The rules are the rules of the Penn Treebank in the version of Stanford's tokenizer, which See et al. (2017) used
    for the CNN / Daily Mail corpus: "don't" becomes `do n't`, brackets become `-lrb-` and `-rrb-`, quotation marks
    become ```` `` ```` and `''`, the period at the end of a sentence is a token, and the period of an abbreviation is
    part of its token. Tokenized text does not change. Control characters separate words.
    """
    text = _CONTROL.sub(" ", _SOFT.sub("", text))
    text = _OPENING_QUOTE.sub(" `` ", text)
    text = _OPENING_APOSTROPHE.sub(" ` ", text).replace("’", "'")
    text = _CONTRACTION.sub(r" \1", text)
    text = _JOINED.sub(lambda match: " ".join(filter(None, match.groups())), text)
    return [SIGNS.get(token, token) for token in _TOKEN.findall(text.lower() if lower else text)]


def has_control_characters(text: str) -> bool:
    """Return whether a text contains characters that are neither visible nor white space."""
    return _CONTROL.search(text) is not None


def split_sentences(tokens: Iterable[str]) -> tuple[list[str], ...]:
    """Return the sentences of a tokenized text. Closing marks after the end of a sentence belong to it: `''`, `-rrb-`.

    Args:
        tokens: tokens from `tokenize`.
    """
    sentences: list[list[str]] = []
    ended = True
    for token in tokens:
        if ended and not (sentences and token in (*CLOSING, *ENDS)):
            sentences.append([])
            ended = False
        sentences[-1].append(token)
        ended = ended or token in ENDS
    return tuple(sentences)
