"""The inputs that leave first and last: thumbnails or texts, each with its answer."""

from base64 import b64encode
from collections.abc import Sequence

from offramp.features import Source
from offramp.report._answers import Sample
from offramp.report._findings import Findings
from offramp.report._inputs import Image, look_up
from offramp.report._markup import prose
from offramp.report._words import percent

__all__ = ["show_samples"]

_LONGEST = 300  # characters of a text
_NAME = 60  # characters of a class name
_LONG_NAME = 12  # characters that need more room than an image
_OPEN = {"texts": 6, "images": 24, "images long": 12}  # shown at once; the rest unfolds


def show_samples(findings: Findings, source: Source | None) -> str:
    """Return both groups side by side, or a sentence on why there are none.

    Args:
        findings: The findings.
        source: The source that the features were extracted from, if there is one.
    """
    if source is None:
        return "<p>No inputs are shown: the report was written without their source.</p>"
    groups = []
    for title, samples in (("leave first", findings.first), ("leave last", findings.last)):
        shown = look_up(source, samples) if samples else []
        if shown is None:
            return "<p>No inputs are shown: they are neither images nor texts.</p>"
        groups.append(_group(title, samples, shown, findings))
    return "\n".join(groups)


def _group(title: str, samples: Sequence[Sample], shown: list[Image] | list[str], findings: Findings) -> str:
    if not samples:
        return f"<p>All inputs leave at exit {findings.first[0].exit}; none leaves later.</p>"
    exits = sorted({sample.exit for sample in samples})
    where = f"exit {exits[0]}" if len(exits) == 1 else f"exits {exits[0]} to {exits[-1]}"
    right = sum(sample.predicted == sample.label for sample in samples)
    caption = (
        f"Answers at {where}. The first {len(samples)} of these rows, not selected by hand; {right} are right. A wrong "
        "answer is orange, with the true class."
    )
    inputs: Sequence[Image | str] = shown
    entries = [_entry(sample, value, findings.classes) for sample, value in zip(samples, inputs, strict=True)]
    kind, count = "texts", _OPEN["texts"]
    if not isinstance(shown[0], str):
        names = (findings.classes[sample.predicted] for sample in samples)
        kind = "images long" if max(map(len, names)) > _LONG_NAME else "images"
        count = _OPEN[kind]
    body = f'<ol class="{kind}">\n' + "\n".join(entries[:count]) + "\n</ol>"
    if rest := entries[count:]:
        more = f'<ol class="{kind}">\n' + "\n".join(rest) + "\n</ol>"
        body += f"\n<details><summary>{len(rest)} more</summary>\n{more}\n</details>"
    return (
        f'<section class="card"><h3>Inputs that {title}</h3>\n<p class="quiet">{prose(caption)}</p>\n{body}\n</section>'
    )


def _entry(sample: Sample, value: Image | str, classes: Sequence[str]) -> str:
    wrong = sample.predicted != sample.label
    answer = _cut(classes[sample.predicted], _NAME)
    answer += f"; is {_cut(classes[sample.label], _NAME)}" if wrong else ""
    kind = ' class="wrong"' if wrong else ""
    if isinstance(value, str):
        where = f"exit {sample.exit}, confidence {percent(sample.confidence)}"
        return (
            f'<li{kind}><p class="text">{prose(_cut(value, _LONGEST))}</p>'
            f'<p><span class="answer">{prose(answer)}</span> <span class="quiet">{prose(where)}</span></p></li>'
        )
    from offramp.report._canvas import image_png  # with matplotlib, which texts do not need

    data = b64encode(image_png(value)).decode()
    label = f"row {sample.row}, answered {answer} at exit {sample.exit} with confidence {percent(sample.confidence)}"
    return (
        f'<li{kind}><img alt="{prose(label)}" src="data:image/png;base64,{data}">'
        f'<span class="answer">{prose(answer)}</span></li>'
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
