"""A secure sum is one vector of all that an exchange sums, and the total is read by statistic again."""

from dataclasses import replace

import numpy as np
import pytest

from fedmr_med.statistics.fields import Field
from fedmr_med.wire.forms import MODELS
from fedmr_med.wire.kinds import EXCHANGES, TRAIN
from tests.helpers.errors import raises
from tests.helpers.replies import form_with

FORM = form_with(("a", "b"))
WITH_MODELS = replace(FORM, models={"w": Field((2, 3))})


@pytest.mark.parametrize("kind", EXCHANGES)
def test_a_total_is_read_by_statistic(kind: str) -> None:
    first, *others = FORM.layouts[kind]
    values = {name: np.ones(field.shape, np.int64) for name, field in FORM.layouts[kind][first].fields.items()}
    release = f"{kind}-3"
    total = FORM.unpack(release, 2 * FORM.pack(release, {first: values}))
    assert list(total) == [first, *others]
    for part, layout in FORM.layouts[kind].items():
        assert {name: array.shape for name, array in total[part].items()} == {
            name: field.shape for name, field in layout.fields.items()
        }
        assert all((array == (2 if part == first else 0)).all() for array in total[part].values())


def test_models_are_summed_where_they_are_trained_and_nowhere_else() -> None:
    for kind in EXCHANGES:
        more = WITH_MODELS.layout(kind).size - FORM.layout(kind).size
        assert more == (6 if kind == TRAIN else 0)
        assert (MODELS in WITH_MODELS.unpack(kind, np.zeros(WITH_MODELS.layout(kind).size, np.uint64))) == bool(more)
    assert MODELS not in FORM.unpack(TRAIN, np.zeros(FORM.layout(TRAIN).size, np.uint64))


def test_vectors_have_the_size_of_the_sum_of_one_exchange() -> None:
    assert WITH_MODELS.vector_sizes == {WITH_MODELS.layout(kind).size for kind in EXCHANGES}


def test_there_is_a_sum_of_each_exchange_and_no_other() -> None:
    for release in ("", "other", "other-train", "training-1"):
        with raises("wire.form", "release"):
            FORM.layout(release)
