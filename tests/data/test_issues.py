"""Issues: one for each kind, with the number, the first examples, all paths and what to do."""

from __future__ import annotations

from oodzoo.data import issues
from oodzoo.data.listing import Issue, Sample
from oodzoo.data.summary_rows import Spread

SAMPLES = [
    Sample("day/cat/1", "day", "cat"),
    Sample("day/cat/2", "day", "cat"),
    Sample("day/dog/1", "day", "dog"),
    Sample("night/cat/1", "night", "cat"),
    Sample("night/cat/2", "night", "cat"),
]


def identical(samples: list[Sample], digests: list[str | None]) -> dict[str, Issue]:
    found = list(issues.identical_images(samples, issues.find_identical(digests)))
    assert len({issue.kind for issue in found}) == len(found)
    return {issue.kind: issue for issue in found}


def test_sets_of_identical_images_in_order() -> None:
    digests = ["b", None, "a", "b", None, "c", "a", "b"]
    assert issues.find_identical(digests) == [(0, 3, 7), (2, 6)]
    assert issues.find_identical([]) == []


def test_empty_files_are_not_identical() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert issues.find_identical([empty, empty]) == []


def test_identical_images_of_several_domains_labels_or_neither() -> None:
    found = identical(SAMPLES, ["a", "b", "a", "b", "c"])
    assert found["two labels"].paths == ("day/cat/1", "day/dog/1")
    assert found["leak"].paths == ("day/cat/2", "night/cat/1")
    assert set(found) == {"two labels", "leak"}
    assert "differently: 'day/cat/1' ('cat') = 'day/dog/1' ('dog')" in found["two labels"].message
    assert identical(SAMPLES, ["a", "a", "b", "c", "c"])["copies"].paths == (
        *("day/cat/1", "day/cat/2", "night/cat/1", "night/cat/2"),
    )


def test_identical_images_of_several_domains_and_labels_are_two_issues() -> None:
    found = identical(SAMPLES, ["a", "b", "a", "a", "c"])
    paths = ("day/cat/1", "day/dog/1", "night/cat/1")
    assert {kind: issue.paths for kind, issue in found.items()} == {
        "leak": paths,
        "two labels": paths,
    }
    assert found["two labels"].message == (
        "3 images are identical but labelled differently: 'day/cat/1' ('cat') = 'day/dog/1' ('dog')"
    )


def test_copies_of_one_group_are_no_issue() -> None:
    grouped = [Sample("a", "day", "cat", "g"), Sample("b", "day", "cat", "g")]
    assert identical(grouped, ["x", "x"]) == {}
    assert set(identical([*grouped, Sample("c", "day", "cat", "h")], ["x"] * 3)) == {"copies"}


def test_identical_images_show_the_first_sets_and_count_all() -> None:
    samples = [Sample(f"{d}/{n}", d, "cat") for n in range(5) for d in ("day", "night")]
    (leak,) = identical(samples, [str(at // 2) for at in range(10)]).values()
    assert leak.message == (
        "leak between domains: 10 images are identical to images of other domains: "
        "'day/0' = 'night/0', 'day/1' = 'night/1', 'day/2' = 'night/2', and 2 more; "
        "leave-one-domain-out results will be too optimistic"
    )
    assert str(leak) == f"{leak.message}; keep each image in one domain"
    assert len(leak.paths) == 10
    (leak,) = identical(samples, ["x"] * 10).values()
    assert "'day/0' = 'night/0' = 'day/1' = …; leave" in leak.message


def test_unreadable_images_are_counted_by_reason_the_most_frequent_first() -> None:
    problems = {"a": "truncated", "b": "empty", "c": "empty"}
    (issue,) = issues.unreadable_images(problems)
    assert issue.message == "3 images cannot be read: 'b' and 1 more: empty; 'a': truncated"
    assert issue.paths == ("a", "b", "c")
    assert "replace or remove" in issue.advice
    (issue,) = issues.unreadable_images({str(n): f"reason {n}" for n in range(9)})
    assert issue.message.endswith("'2': reason 2; and 6 more")
    assert list(issues.unreadable_images({})) == []


def test_issues_of_a_listing_are_joined_by_kind() -> None:
    given = [
        Issue("empty class", "'day/a' has no images"),
        Issue("broken link", "'x' is a broken link; ignored", ("x",)),
        *(Issue("empty class", f"'day/{n}' has no images", (f"day/{n}",)) for n in range(4)),
        Issue("of a new source", "something"),
        Issue("another", "what", (), "do this"),
    ]
    empty, broken, new, another = issues.listed(given)
    assert empty.message == (
        "'day/a' has no images; 'day/0' has no images; 'day/1' has no images; and 2 more"
    )
    assert empty.paths == ("day/0", "day/1", "day/2", "day/3")
    assert str(empty).endswith("; add images or remove the folder")
    assert broken.paths == ("x",)
    assert str(new) == "something"
    assert str(another) == "what; do this"


def test_domains_without_classes_are_one_issue_of_each_kind() -> None:
    counts = {
        "a": {"cat": 1, "dog": 1, "cow": 0},
        "b": {"cat": 1, "dog": 0, "cow": 0},
        "c": {"cat": 1, "dog": 1, "cow": 3},
        "d": {"cat": 0, "dog": 1, "cow": 1},
    }
    single, missing = issues.missing_classes(counts)
    assert single.message == "domain 'b' has images of one class only, 'cat'"
    assert missing.message == (
        "domain 'a' has no images of class 'cow'; domain 'd' has no images of class 'cat'"
    )
    assert single.advice
    assert missing.advice
    assert list(issues.missing_classes({"c": counts["c"]})) == []


def test_label_shift_is_an_issue_beyond_what_chance_gives() -> None:
    by_chance = {"a": 5.0, "b": 40.0, "c": 0.0}
    (issue,) = issues.different_mixtures({"a": 26.0, "b": 50.0, "c": 35.0}, by_chance)
    assert issue.message.endswith("label shift 35 % in 'c', 26 % in 'a'")
    assert "'b'" not in issue.message
    assert list(issues.different_mixtures({"a": 25.0}, by_chance)) == []


def test_sizes_that_differ_four_times_are_an_issue() -> None:
    assert list(issues.different_sizes({"a": (32, 64), "b": (500, 127)})) == []
    (issue,) = issues.different_sizes({"a": (32, 64), "c": (64, 64), "b": (500, 128)})
    assert "median 32×64 in 'a' and 500×128 in 'b'" in issue.message
    assert list(issues.different_sizes({})) == []


def test_small_images_are_named() -> None:
    assert list(issues.small_images([])) == []
    (issue,) = issues.small_images(["a", "b", "c", "d", "e"])
    assert issue.message.startswith("5 images with a side below 32 pixels")
    assert issue.message.endswith(": 'a', 'b', 'c', and 2 more")
    assert issue.paths == ("a", "b", "c", "d", "e")


def test_groups_in_several_domains() -> None:
    samples = [Sample("1", "day", "cat", "g"), Sample("2", "night", "cat", "g")]
    (leak,) = issues.shared_groups([*samples, Sample("3", "day", "cat", "h")])
    assert "group 'g' in several domains" in leak.message
    assert list(issues.shared_groups(samples[:1] * 2)) == []


def test_labels_that_a_domain_lacks() -> None:
    counts = {"day": {"a": 3, "b": 0, "c": 0}, "night": {"a": 2, "b": 1, "c": 0}}
    unused, missing = issues.missing_labels(counts)
    assert (unused.kind, unused.message) == ("unused label", "no image has the label 'c'")
    assert missing.kind == "missing label"
    assert missing.message == "domain 'day' has no images with the label 'b'"
    assert list(issues.missing_labels({"day": {"a": 1}, "night": {"a": 1}})) == []


def test_numbers_that_are_constant_in_a_domain() -> None:
    numbers = {
        "day": {"age": Spread(2.0, 0.0, 2.0, 2.0), "height": Spread(1.0, 1.0, 0.0, 2.0)},
        "night": {"age": Spread(3.0, 1.0, 2.0, 4.0), "height": Spread(1.0, 1.0, 0.0, 2.0)},
    }
    (issue,) = issues.constant_numbers(numbers)
    assert issue.kind == "constant"
    assert issue.message == "'age' is 2 in all images of domain 'day'"


def test_ranges_that_hardly_overlap() -> None:
    def of(overlap: float | None) -> dict[str, dict[str, Spread]]:
        return {"day": {"age": Spread(2.0, 1.0, 1.0, 3.0, overlap)}}

    (issue,) = issues.different_ranges(of(24.9))
    assert issue.kind == "ranges"
    assert "'age' is 1 to 3 in 'day', where 25 % of the values are as in" in issue.message
    assert list(issues.different_ranges(of(25.0))) == []
    assert list(issues.different_ranges(of(None))) == []
