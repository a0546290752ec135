"""CIFAR-10 (Krizhevsky, 2009): 60,000 colour images of 32 pixels."""

from fedmr_med.data.datasets.base import Dataset, Protocol
from fedmr_med.lab.datasets.archives import CifarLayout, arrays, cifar

LAYOUT = CifarLayout(
    archive="cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    label_key=b"labels",
)

CIFAR10 = Dataset(
    name="cifar10",
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    image_size=32,
    read=arrays(cifar(LAYOUT)),
    files=LAYOUT.files,
    # The paper names no transform; its accuracies need the usual crop and flip.
    protocol=Protocol("resnet18", "crop_flip", 100, split="P5C2", rounds_by_clients={50: 200, 100: 400}),
)
