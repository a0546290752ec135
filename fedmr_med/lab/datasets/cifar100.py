"""CIFAR-100 (Krizhevsky, 2009): 60,000 colour images of 32 pixels, with their fine labels."""

from fedmr_med.data.datasets.base import Dataset, Protocol
from fedmr_med.lab.datasets.archives import CifarLayout, arrays, cifar

LAYOUT = CifarLayout(
    archive="cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    folder="cifar-100-python",
    train=("train",),
    test="test",
    label_key=b"fine_labels",
)
# fmt: off
CLASS_NAMES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair",
    "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin",
    "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp",
    "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck",
    "pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
    "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger",
    "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman",
    "worm",
)
# fmt: on

CIFAR100 = Dataset(
    name="cifar100",
    class_names=CLASS_NAMES,
    image_size=32,
    read=arrays(cifar(LAYOUT)),
    files=LAYOUT.files,
    protocol=Protocol("wide_resnet28_10", "crop_flip", 200, split="P10C10", rounds_by_clients={50: 400, 100: 400}),
)
