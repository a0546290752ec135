"""Training floors: what a hospital demands of a job before it trains for it. :mod:`fedmr_med.site.floors` checks them.

A model update can be made to speak of single images (SECURITY.md): one step on one huge batch, batches of two from
a classifier of zeros, the same batches through two models. Floors refuse the settings that make this easy. They do
not make an update harmless.
"""

from typing import Self, get_args

from pydantic import Field, model_validator

from fedmr_med.schema import Sha256, Strict, invalid
from fedmr_med.secure import Secure

HELD_OUT, VALIDATION = 0.15, (0.0, 0.2)
"""What a job may set aside of a class, as ``head.held_out`` and ``train.validation``: with any share, two jobs would
have sums that differ by one image."""


class TrainingFloors(Strict):
    """The settings a job must keep to. The defaults let the shipped jobs run.

    Attributes:
        methods, models: the names that may be asked for; None allows every registered one.
        weights: SHA-256 of weights that a job may bring (its ``model.weights``) without a person's approval. All others
            wait for ``fedmr-med site jobs``, also with ``approve: always``: who chooses weights chooses what is asked.
        min_batch_size, max_batch_size: images in a mini-batch.
        min_batches: batches that the local training images make at least; 2 refuses a batch that holds all of them.
        min_updates: optimiser steps of a round.
        min_lr, max_lr: learning rate.
        min_sites: replies without which no model is made, the job's ``federation.min_sites``. Three keep each site
            from subtracting its own share and reading the other's.
        secure: what must be summed securely at least, the job's ``federation.secure``. ``all`` keeps the site's own
            model from everybody, the server included.
        min_head_spread: how far the classifier's rows must differ, relative to a fresh layer of its size: a
            classifier of zeros or equal rows gives single images away.
        max_norm: the largest norm of an array that the server sends.
        repeat_rounds: whether a round that was answered may be asked again with another model, to train, to score or
            for a closed-form head. The same model may always come again: a server that was restarted repeats its round.
        max_jobs_per_day: jobs that get an answer within 24 hours; None does not count them. A job that was refused is
            not one of them: otherwise anybody who may submit could use the number up with jobs that nobody trains for.
    """

    methods: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    weights: tuple[Sha256, ...] = ()
    min_batch_size: int = Field(8, ge=2)
    max_batch_size: int = Field(512, ge=2)
    min_batches: int = Field(2, ge=1)
    min_updates: int = Field(10, ge=1)
    min_lr: float = Field(1e-5, gt=0)
    max_lr: float = Field(0.1, gt=0)
    min_sites: int = Field(3, ge=1)
    secure: Secure = "none"
    min_head_spread: float = Field(0.01, ge=0)
    max_norm: float = Field(1e6, gt=0)
    repeat_rounds: bool = False
    max_jobs_per_day: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _ranges_are_not_empty(self) -> Self:
        for least, most in (("min_batch_size", "max_batch_size"), ("min_lr", "max_lr")):
            if getattr(self, least) > getattr(self, most):
                raise invalid(f"{least} is above {most}", code="config.conflict", key=least)
        return self

    def asks_about(self, weights: str | None) -> bool:
        """Whether a person has to approve a job that brings these weights; None brings none."""
        return weights is not None and weights not in self.weights

    def demands_more_than(self, secure: Secure) -> bool:
        """Whether a job that sums this much securely sums too little."""
        order = get_args(Secure)
        return order.index(secure) < order.index(self.secure)
