"""The plain loops that the losses are compared with give the same values and gradients."""

import pytest
import torch

from fedmr_med.lab.perf.workload import inter_class_loop, intra_class_loop
from fedmr_med.losses import inter_class_loss, intra_class_loss


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 1, 3, 0, 2], [0, 1, 2, 3, 0, 1, 2, 3], [0, 1, 2, 3, 1, 1, 1, 1]])
def test_loops_and_losses_agree(labels: list[int]) -> None:
    torch.manual_seed(0)
    classes = torch.tensor(labels)
    prototypes, available = torch.randn(4, 6), torch.tensor([True, True, False, True])
    gradients = []
    for intra, inter in (
        (intra_class_loss, lambda z: inter_class_loss(z, classes, prototypes, available=available)),
        (intra_class_loop, lambda z: inter_class_loop(z, classes, prototypes, available)),
    ):
        features = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()
        loss = intra(features, classes) + inter(features)
        loss.backward()
        gradients.append((loss.detach(), features.grad))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)
