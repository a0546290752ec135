"""The networks that FLamby trains on its classification datasets."""

from pathlib import Path

from torch import nn

from fedmr_med.errors import ConfigError
from fedmr_med.lab.flamby.checkout import find_dataset
from fedmr_med.models.wrapped import wrap
from fedmr_med.network import Network

# Where dropout, which is no part of the feature, comes right before the classifier.
_FEATURE_LAYERS = {"fed_isic2019": "base_model._avg_pooling"}


def flamby_baseline(
    num_classes: int, in_channels: int, *, dataset: str, hidden: int | None = None, flamby: str | None = None
) -> Network:
    """Return FLamby's ``Baseline`` for a dataset, with one output per class.

    A Baseline with one output for two classes gets two. One that is a single linear layer has the raw input for a
    feature: a prototype would be the mean of patients' attributes. It needs a layer of ``hidden`` units before it.

    Raises:
        ConfigError: FLamby is not there, or the Baseline has no feature.
    """
    baseline = find_dataset(None if flamby is None else Path(flamby), dataset).Baseline
    network: nn.Module = baseline(pretrained=False) if dataset == "fed_isic2019" else baseline()
    linear = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    if len(list(network.parameters())) == len(list(linear[-1][1].parameters())):
        if hidden is None:
            why = f"FLamby's Baseline for {dataset} is one linear layer, whose feature is a patient's raw attributes"
            advice = "Give it a hidden layer: model.options.hidden=16."
            raise ConfigError(f"model.options: {why}. {advice}", code="model.raw-features", key="model.options")
        size = linear[-1][1].in_features
        return wrap(nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, num_classes)))
    if linear[-1][1].out_features == 1 and num_classes == 2:
        parent, _, key = linear[-1][0].rpartition(".")
        setattr(network.get_submodule(parent), key, nn.Linear(linear[-1][1].in_features, num_classes))
    return wrap(network, _FEATURE_LAYERS.get(dataset))
