"""What `oodzoo predict` says at the end: classes, abstentions, sets, sorted images."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from oodzoo._text import count

if TYPE_CHECKING:
    from oodzoo.predictor import Prediction
    from oodzoo.predictor.left_out import LeftOut
    from oodzoo.predictor.prediction_sets import SetLevel
    from oodzoo.predictor.sorting import Sorter

_MOST = 5
"""Classes that are named."""


class Summary:
    """Counts of predictions."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.n = self.far = self.abstained = self.members = 0
        self._labels: Counter[str] = Counter()

    def add(self, found: Prediction) -> None:
        """Count a prediction."""
        self.n += 1
        self.far += found.out_of_domain
        self.abstained += found.abstained
        self.members += len(found.set or ())
        labels = found.label if isinstance(found.label, tuple) else (found.label,)
        if found.probabilities is not None and not found.abstained:
            self._labels.update(map(str, labels))

    def text(self) -> str:
        """Number of samples, and of those of the most frequent classes."""
        ranked = self._labels.most_common()
        named = ", ".join(f"{label} ({n:,})" for label, n in ranked[:_MOST])
        if others := ranked[_MOST:]:
            n = sum(each for _, each in others)
            named += f" and {count(len(others), 'other class', 'other classes')} ({n:,})"
        return count(self.n, self.noun) + (f": {named}" if named else "")

    def far_text(self) -> str:
        """Samples unlike the training samples."""
        return (
            f"{self.far} of {count(self.n, self.noun)} {'is' if self.far == 1 else 'are'} unlike "
            f"the training {self.noun}s (distance above 1); their predictions are unreliable"
        )

    def abstained_text(self, confidence: float, left_out: LeftOut | None, but: str = "") -> str:
        """Samples without a label, and the accuracy of the others on left-out domains.

        `but` is added to what was measured.
        """
        have = "has" if self.abstained == 1 else "have"
        text = (
            f"{self.abstained:,} of {count(self.n, self.noun)} {have} no label: confidence below "
            f"{confidence:g}"
        )
        if left_out is None or not left_out.confidence:
            return f"{text}; what others gain was not measured for this predictor, fit again for it"
        point = left_out.at_confidence(confidence)
        at = f" at {point.confidence:g}" if point.confidence != confidence else ""
        if point.accuracy is None or point.worst is None:
            return f"{text}; on left-out domains, no {self.noun} had this confidence"
        return (
            f"{text}; on left-out domains{at}, {point.accuracy:.1f} % of the others were right "
            f"(worst domain {point.worst:.1f} %), and {100 - point.kept:.0f} % had no label"
            f"{but}"
        )


def sets_document(chosen: SetLevel) -> dict[str, Any]:
    """The same, for JSON."""
    domain, worst = chosen.worst
    return {
        "level": chosen.level,
        "average": chosen.average,
        "worst": worst,
        "worst_domain": domain,
        "size": chosen.size,
        "thresholds": list(chosen.thresholds),
    }


def sorted_text(sorter: Sorter) -> str:
    """Where images were sorted into."""
    n = sum(sorter.counts.values())
    left = f"; {sorter.left:,} of them were there already" if sorter.left else ""
    return f"sorted {count(n, 'image')} into {str(sorter.folder)!r}{left}"
