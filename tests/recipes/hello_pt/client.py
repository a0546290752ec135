"""A training script as in FLARE's hello-pt, with FedMR's loss, on noise that is the brighter the higher its class."""

import argparse

import torch
from model import SimpleNetwork

from fedmr_med.client import FedMRLoss, get_site_name, init, is_running, receive, send
from fedmr_med.models import wrap

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, required=True)
    size = parser.parse_args().batch_size
    init()
    generator = torch.Generator().manual_seed(int(get_site_name()[-1]))
    labels = torch.randint(0, 10, (64,), generator=generator)
    images = torch.randn(64, 3, 32, 32, generator=generator) + labels[:, None, None, None] / 5
    network = wrap(SimpleNetwork())
    while is_running():
        task = receive()
        if task is None:
            break
        network.load_state_dict(task.model)
        loss = FedMRLoss.from_task(task, counts=torch.bincount(labels, minlength=10), classifier=network.classifier)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
        for x, y in zip(images.split(size), labels.split(size), strict=True):
            features, logits = network(x)
            optimizer.zero_grad()
            loss(features, logits, y).backward()
            optimizer.step()
        send(network, samples=len(labels))
