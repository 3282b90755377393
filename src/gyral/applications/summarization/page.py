"""An HTML page of summaries next to their articles: attention, copied words and metrics."""

import base64
import html
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np

from gyral.applications.summarization import rouge
from gyral.applications.summarization.data.files import join_words
from gyral.core.files import replace_when_written
from gyral.core.html import page_head, strengths


class Shown(NamedTuple):
    """A summary with the attention that produced it.

    Attributes:
        place: location of the article in the input, shown to the user.
        article: the S words of the article that the model read.
        reference: sentences of the reference summary; empty if there is none.
        summary: sentences of the model's summary, T words.
        attention: (T, S) attention to the words of the article.
        copied: (T,) fraction of each word's probability that is due to copying.
    """

    place: str
    article: Sequence[str]
    reference: Sequence[Sequence[str]]
    summary: Sequence[Sequence[str]]
    attention: np.ndarray
    copied: np.ndarray


def write_page(path: Path, shown: Sequence[Shown], title: str) -> None:
    """Write a self-contained HTML page.

    Args:
        path: path of the page.
        shown: the summaries.
        title: title of the page.
    """

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(page_head(title, STYLE))
            file.write(HEAD.substitute(title=html.escape(title)))
            for summary in shown:
                file.write(_section(summary))
            file.write(FOOT)

    replace_when_written(path, write)


def _section(shown: Shown) -> str:
    mean = shown.attention.mean(axis=0) if len(shown.attention) else np.zeros(len(shown.article))
    steps = np.round(255 * strengths(shown.attention)).astype(np.uint8)
    words = zip(shown.article, strengths(mean).tolist(), strict=True)
    article = " ".join(_word(word, strength) for word, strength in words)
    copied = iter(shown.copied.tolist())
    summary = "".join(
        f"<p>{' '.join(_word(word, next(copied), ' tabindex=0') for word in sentence)}</p>"
        for sentence in shown.summary
    )
    reference = "".join(f"<p>{html.escape(' '.join(sentence))}</p>" for sentence in shown.reference)
    facts = " · ".join(f"{name} {value:.1f} %" for name, value in measure(shown).items())
    return SECTION.substitute(
        place=html.escape(shown.place),
        facts=html.escape(facts),
        article=article,
        summary=summary or "<p>(no word)</p>",
        reference=f"<h3>Reference</h3>{reference}" if reference else "",
        steps=base64.b64encode(steps.tobytes()).decode(),
    )


def measure(shown: Shown) -> dict[str, float]:
    """Return the metrics of a summary in percent, by their usual names."""
    written = list(chain.from_iterable(shown.summary))
    facts = {}
    if shown.reference:
        scores = rouge.score([join_words(shown.reference)], [join_words(shown.summary)], samples=1)
        facts = {name.replace("rouge", "ROUGE-"): found.f1 for name, found in scores.items()}
    facts["copied"] = 100 * float(shown.copied.mean()) if len(shown.copied) else 0.0
    facts["repeated 3-grams"] = rouge.repetition(shown.summary)["3-grams"]
    facts["novel 2-grams"] = rouge.novel_ngrams(shown.article, written, 2)
    return facts


def _word(word: str, strength: float, more: str = "") -> str:
    return f'<span style="--a:{strength:.2f}"{more}>{html.escape(word)}</span>'


STYLE = """\
:root { --look: 255 170 40; --copy: 60 150 230 }
@media (prefers-color-scheme: dark) { :root { --look: 190 100 0; --copy: 20 95 170 } }
body { margin: 0 auto; max-width: 80rem; padding: 0.75rem 1.25rem; line-height: 1.6 }
h2 { margin: 0; font-size: 1.05rem }
h3 { margin: 1rem 0 0; font-size: 0.9rem; color: var(--faint) }
.faint { color: var(--faint); font-variant-numeric: tabular-nums }
section { border-top: 1px solid var(--line); margin-top: 1.25rem; padding-top: 0.75rem }
.beside { display: grid; grid-template-columns: 3fr 2fr; gap: 0 2rem }
@media (max-width: 45rem) { .beside { grid-template-columns: 1fr } .beside > :last-child { order: -1 } }
span { border-radius: 3px; padding: 0.05em 0.1em }
.article span { background: rgb(var(--look) / var(--a)) }
.summary span { background: rgb(var(--copy) / var(--a)); cursor: pointer }
.summary span:hover, .summary span:focus { outline: 2px solid var(--ink) }
.key span { padding: 0 0.5em; color: var(--ink) }
"""

HEAD = Template("""\
<header>
<h1>$title</h1>
<p class="faint key"><span style="background: rgb(var(--copy) / 0.8)">copied</span> a word of a summary: the fraction of
its probability that is due to copying from the article;
<span style="background: rgb(var(--look) / 0.8)">attention</span> a word of an article: the mean
attention to it, on a logarithmic scale from the share that every word has if the attention is uniform (no color) to all
of it. Point at a word of a summary, or move to it with the tab key, to see the attention when it was
written.</p>
</header>
<main>
""")

SECTION = Template("""\
<section data-steps="$steps">
<h2>$place</h2>
<p class="faint">$facts</p>
<div class="beside">
<div><h3>Article (the part that was read)</h3><p class="article">$article</p></div>
<div><h3>Summary</h3><div class="summary">$summary</div>$reference</div>
</div>
</section>
""")

FOOT = """\
</main>
<script>
for (const section of document.querySelectorAll("section")) {
  const words = [...section.querySelectorAll(".article span")];
  const all = words.map(word => word.style.getPropertyValue("--a"));
  const steps = Uint8Array.from(atob(section.dataset.steps), sign => sign.charCodeAt(0));
  const show = strengths => words.forEach((word, place) => word.style.setProperty("--a", strengths[place]));
  [...section.querySelectorAll(".summary span")].forEach((word, step) => {
    const own = () => show(words.map((_, place) => steps[step * words.length + place] / 255));
    for (const event of ["mouseenter", "focus"]) word.addEventListener(event, own);
    for (const event of ["mouseleave", "blur"]) word.addEventListener(event, () => show(all));
  });
}
</script>
</body>
</html>
"""
