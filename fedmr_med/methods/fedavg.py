"""FedAvg (McMahan et al., 2017): local training and the sample-weighted mean. The base of all other methods."""

from fedmr_med.methods.base import Method, register


@register
class FedAvg(Method):
    """Both halves are the defaults of :mod:`fedmr_med.methods.base`."""

    name = "fedavg"
    per_sample = True
