"""The most confident mistakes."""

from __future__ import annotations

from oodzoo.diagnostics.classes import Mistake, most_confident


def test_the_most_confident_come_first_and_equal_ones_stay_in_order() -> None:
    mistakes = [Mistake(str(i), "d", "a", "b", sure) for i, sure in enumerate([50, 90, 70, 90])]
    assert [each.path for each in most_confident(mistakes)] == ["1", "3", "2", "0"]
    assert [each.path for each in most_confident(mistakes, 3)] == ["1", "3", "2"]


def test_images_of_two_domains_may_have_the_same_path() -> None:
    one, other = (Mistake("1.png", domain, "a", "b", 90.0) for domain in ("day", "night"))
    assert one.key != other.key
