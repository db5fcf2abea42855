"""DomainBed's protocol on cached features [1]_.

Splits, random search, Adam, the three selection rules, trials and tables follow the reference.
Image augmentation is not reproduced, since the features of each image are computed only once.

References
----------
.. [1] Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021.
"""

from __future__ import annotations

from oodzoo.linear.heads.domainbed.protocol import RULES, Hyperparameters, Record, Split, cell
from oodzoo.linear.heads.domainbed.sweep import Chosen, Sweep, sweep

__all__ = ["RULES", "Chosen", "Hyperparameters", "Record", "Split", "Sweep", "cell", "sweep"]
