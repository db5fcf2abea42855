"""Domains that are proposed, not given: by columns of metadata or clusters of features."""

from oodzoo.ranking.domains.proposing import propose_domains, use_domains
from oodzoo.ranking.domains.result import DomainProposals, Sensitivity

__all__ = ["DomainProposals", "Sensitivity", "propose_domains", "use_domains"]
