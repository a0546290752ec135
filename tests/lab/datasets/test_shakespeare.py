"""LEAF's Shakespeare."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med import models
from fedmr_med.lab.datasets.shakespeare import CHARACTERS, OTHER, encode, read_clients, read_speakers
from fedmr_med.lab.models.char_lstm import VOCABULARY_SIZE
from tests.helpers.archives import write_mini_shakespeare
from tests.helpers.errors import raises


def write(path: Path, user_data: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"users": list(user_data), "user_data": user_data}))


def test_there_are_80_characters_and_one_index_for_the_others():
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 80
    assert VOCABULARY_SIZE == OTHER + 1
    assert np.array_equal(encode(CHARACTERS), np.arange(80))
    assert list(encode("aé€😀b")) == [CHARACTERS.index("a"), OTHER, OTHER, OTHER, CHARACTERS.index("b")]


def test_speakers_are_joined_from_all_files(tmp_path: Path):
    write_mini_shakespeare(tmp_path, speakers=5, samples=4)
    speakers = read_speakers(tmp_path / "train")
    assert sorted(speakers) == [f"SPEAKER_{n}" for n in range(5)]
    for speaker in speakers.values():
        assert speaker.fold.items.shape == (4, 80)
        assert speaker.fold.items.dtype == np.uint8
        assert np.array_equal(speaker.fold.labels, speaker.fold.items[:, 0])
        assert speaker.skipped == ()


def test_texts_followed_by_another_character_are_left_out_and_listed(tmp_path: Path):
    write(tmp_path / "a.json", {"HAMLET": {"x": ["t" * 80, "o" * 79 + "~", "b" * 80], "y": ["o", " ", "~"]}})
    speaker = read_speakers(tmp_path)["HAMLET"]
    assert len(speaker.fold) == 2
    assert speaker.fold.items[1, -1] == OTHER
    assert len(speaker.skipped) == 1
    assert "text 2 is followed by '~'" in speaker.skipped[0]


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ({"x": ["short"], "y": ["a"]}, "x"),
        ({"x": ["a" * 80], "y": ["ab"]}, "y"),
        ({"x": ["a" * 80], "y": []}, None),
        ({"x": ["a" * 80]}, None),
        ({"x": [1], "y": ["a"]}, "x"),
        ({"x": None, "y": ["a"]}, None),
        ({"x": ["a" * 80], "y": 1}, None),
    ],
)
def test_other_forms_are_refused_by_file_and_speaker(data, key: str | None, tmp_path: Path):
    write(tmp_path / "bad.json", {"HAMLET": data})
    with raises("data.damaged", key):
        read_speakers(tmp_path)


def test_truncated_and_missing_files_are_refused(tmp_path: Path):
    with raises("data.missing"):
        read_speakers(tmp_path)
    write_mini_shakespeare(tmp_path)
    path = tmp_path / "train" / "all_data_1.json"
    path.write_text(path.read_text()[:-50])
    with raises("data.damaged"):
        read_speakers(tmp_path / "train")


def test_a_speaker_in_two_files_is_refused(tmp_path: Path):
    for name in ("a.json", "b.json"):
        write(tmp_path / name, {"HAMLET": {"x": ["a" * 80], "y": ["b"]}})
    with raises("data.duplicate"):
        read_speakers(tmp_path)


def test_the_seed_draws_the_speakers(tmp_path: Path):
    write_mini_shakespeare(tmp_path, speakers=8)

    def drawn(seed: int) -> list[bytes]:
        return [fold.items.tobytes() for fold in read_clients(tmp_path, 4, seed).clients]

    assert len(set(drawn(0))) == 4
    assert drawn(0) == drawn(0)
    assert len({tuple(drawn(seed)) for seed in range(5)}) > 1
    with raises("data.too-few"):
        read_clients(tmp_path, 9, 0)


def test_the_lstm_learns_the_rule_of_the_small_files():
    torch.manual_seed(0)
    x = torch.randint(0, 4, (64, 10), dtype=torch.uint8)
    y = x[:, -1].long()
    network = models.build("char_lstm", num_classes=4, hidden=16, layers=1)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(network(x)[1], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (network(x)[1].argmax(1) == y).float().mean() > 0.95
