"""What was measured on left-out domains when a predictor was fitted, and whether a test agrees."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from oodzoo._numbers import number, span
from oodzoo.predictor.parts import Provenance

Verdict = Literal["within", "below", "above", "trained on"]


@dataclass(frozen=True)
class Promise:
    """The main metric on left-out domains, measured when the predictor was fitted.

    Attributes
    ----------
    value : float
        In percent, mean over the left-out domains.
    interval : tuple of float, optional
        90 % interval for a single new domain.
    verdicts : dict of str to str
        For each domain of the test: "within", "below" or "above" the interval, or "trained on" if
        the predictor was trained on a domain of this name. A domain is outside only if the
        interval of what was measured on it is. One without such an interval has no verdict, and
        none has without that of the promise.
    """

    value: float
    interval: tuple[float, float] | None
    verdicts: dict[str, Verdict]

    @property
    def new(self) -> dict[str, Verdict]:
        """The verdicts of the domains that the predictor was not trained on."""
        return {name: each for name, each in self.verdicts.items() if each != "trained on"}

    @property
    def agrees(self) -> bool | None:
        """Whether the new domains are within the interval; None if none can be compared.

        It is a 90 % interval for one domain: of ten or more, a tenth may be outside.
        """
        if not self.new:
            return None
        outside = sum(each != "within" for each in self.new.values())
        return 10 * outside <= len(self.new)

    @property
    def text(self) -> str:
        """What was promised and whether the test agrees, in sentences."""
        about = "" if self.interval is None else f", {span(*self.interval)} % for one new domain"
        promised = (
            f"When it was fitted, it reached {number(self.value, 1)} % on left-out domains{about}."
        )
        if self.agrees is None:
            reason = "that has no interval"
            if self.verdicts:
                reason = "it was trained on domains of these names"
            elif self.interval is not None:
                reason = "what was measured on its domains has no interval"
            return f"{promised} This test cannot be compared with it: {reason}."
        new, many = self.new, len(self.new)
        if self.agrees and all(each == "within" for each in new.values()):
            found = "the new domain is" if many == 1 else f"the {many} new domains are"
            return f"{promised} This test agrees: {found} within this interval."
        sides = [
            f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {side} this interval"
            for side in ("below", "above")
            if (names := [repr(name) for name, each in new.items() if each == side])
        ]
        if self.agrees:
            return (
                f"{promised} This test agrees: of the {many} new domains, as many as one in ten "
                f"may be outside; {', '.join(sides)}."
            )
        return f"{promised} This test does not agree: {', '.join(sides)}."


def promise_of(
    provenance: Provenance,
    intervals: Mapping[str, tuple[float, float]],
    trained_on: Collection[str],
) -> Promise | None:
    """Compare the intervals measured on each domain with what the predictor records.

    None if it records no accuracy on left-out domains.
    """
    if provenance.accuracy is None:
        return None
    verdicts: dict[str, Verdict] = {}
    if provenance.accuracy_interval is not None:
        least, most = provenance.accuracy_interval
        for domain, (low, high) in intervals.items():
            if domain in trained_on:
                verdicts[domain] = "trained on"
            else:
                verdicts[domain] = "below" if high < least else "above" if low > most else "within"
    return Promise(provenance.accuracy, provenance.accuracy_interval, verdicts)
