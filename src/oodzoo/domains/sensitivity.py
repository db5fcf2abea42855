"""Rankings of the same models by several proposals of domains, compared."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from oodzoo.domains.result import Sensitivity
from oodzoo.errors import InputError
from oodzoo.events import Listeners
from oodzoo.ranking.ranker import rank
from oodzoo.ranking.result import Ranking
from oodzoo.store.feature_store import FeatureStore
from oodzoo.testbed.correlation import correlation


def rank_by_each(
    stores: Mapping[str, FeatureStore],
    chosen: str,
    *,
    reference: str,
    score: str = "unseen",
    listener: Listeners | None = None,
) -> Sensitivity:
    """Rank the models of a store by several divisions into domains.

    Parameters
    ----------
    stores : dict of str to FeatureStore
        Views of the store by the name of the proposal.
    chosen : str
        The proposal that others are compared with.
    reference : str
        The random split.
    score : str
    listener : Listener or sequence of Listener, optional

    Raises
    ------
    InputError
        If models cannot be ranked by the chosen proposal.
    """
    rankings: dict[str, Ranking] = {}
    failed: dict[str, str] = {}
    for name, store in stores.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the ranking by the domains in use repeats them
                rankings[name] = rank(store, score=score, listener=listener)
        except InputError as error:
            if name == chosen:
                raise
            failed[name] = str(error)
    return compare_rankings(rankings, chosen, reference=reference, failed=failed)


def compare_rankings(
    rankings: Mapping[str, Ranking],
    chosen: str,
    *,
    reference: str,
    failed: Mapping[str, str] | None = None,
) -> Sensitivity:
    """Compare rankings with the one by the chosen proposal; see :class:`Sensitivity`."""
    base = {row.model: row.score for row in rankings[chosen].rows}
    agreement = {}
    ranks = {row.model: [row.rank] for row in rankings[chosen].rows}
    for name, ranking in rankings.items():
        if name == chosen:
            continue
        scores = {row.model: row.score for row in ranking.rows}
        models = [model for model in base if model in scores]
        agreement[name] = correlation(
            "weighted_tau", [base[m] for m in models], [scores[m] for m in models]
        )
        if name != reference:
            for row in ranking.rows:
                ranks.setdefault(row.model, []).append(row.rank)
    return Sensitivity(
        chosen,
        rankings[chosen].score,
        agreement,
        {name: ranking.best for name, ranking in rankings.items()},
        {model: (min(found), max(found)) for model, found in ranks.items()},
        reference,
        dict(failed or {}),
    )
