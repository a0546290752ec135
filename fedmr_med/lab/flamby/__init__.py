"""FedMR beside FLamby: a strategy with FLamby's interface, and the comparison of both on Fed-ISIC2019.

Nothing here needs FLamby to be imported; its own strategies join the comparison where it is there.
"""

from fedmr_med.lab.flamby.register import register
from fedmr_med.lab.flamby.strategy import FedMR

__all__ = ["FedMR", "register"]
