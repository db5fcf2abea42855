"""Domains that are proposed, not given: by columns of metadata or clusters of features."""

from oodzoo.ranking.domains.proposing import (
    DomainProposals,
    Sensitivity,
    propose_domains,
    use_domains,
)

__all__ = ["DomainProposals", "Sensitivity", "propose_domains", "use_domains"]
