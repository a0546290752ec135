"""Classifiers that know which classes are missing at a site, as an addition to any method.

With logits z, the site's n_c images and share p_c of class c, the classes K that it holds and V that it does not, and
the logits z^g of the received model:

- ``restricted`` (FedRS, Li and Zhan, KDD 2021): z_c is multiplied by ``alpha`` for c in V. With
  ``restriction: released`` every z_c is multiplied by alpha + (1 - alpha) p_c / max p, as in the first step of the
  authors' code. Its later steps bring the factors nearer to 1, and it leaves the biases out: neither is followed here;
- ``adjusted`` (logit adjustment, Menon et al., ICLR 2021): tau log p_c is added to z_c, so that V drops out. With
  ``vacant: one`` a class of V counts as one image, as in the balanced softmax of FedETF's code, and stays;
- ``calibrated`` (FedLC, Zhang et al., ICML 2022): tau n_c^(-1/4) is subtracted from z_c, so that V drops out;
- ``scaled`` (FedGELA, Fan et al., NeurIPS 2023): z_c is multiplied by C p_c for C classes, so that V gives zeros;
- ``lmd`` (FedLMD, Lu et al., 2023): plus ``beta`` T^2 KL(softmax of z^g / T over V || softmax of z / T over all classes
  but the label); with ``teacher: uniform`` the uniform distribution over V in the place of the first, without a second
  network;
- ``vls`` (FedVLS, Guo et al., AAAI 2025): adjusted, plus ``distil`` KL(softmax of z^g over V || softmax of z over V),
  plus ``suppress`` sum over c in K of p_c log(mean over the batch of e^{z_c} where the label is not c).

The counts stay at the site: only the loss sees them.
"""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from fedmr_med.methods.local import Batch, LocalRound
from fedmr_med.schema import Strict


class LogitsOptions(Strict):
    """What is done about classes that a site does not hold; each coefficient counts for the kinds that name it.

    Attributes:
        kind: see the module; ``plain`` does nothing.
        alpha: of ``restricted``; 1 restricts nothing.
        restriction: of ``restricted``; ``paper`` for missing classes alone, ``released`` by the counts of all.
        tau: of ``adjusted``, ``calibrated`` and ``vls``; 0 changes nothing.
        vacant: of ``adjusted``; ``drop`` takes missing classes out of the softmax, ``one`` keeps them.
        beta, temperature, teacher: of ``lmd``.
        distil, suppress: of ``vls``.
    """

    kind: Literal["plain", "adjusted", "calibrated", "restricted", "scaled", "lmd", "vls"] = "plain"
    alpha: float = Field(0.5, ge=0, le=1)
    restriction: Literal["paper", "released"] = "paper"
    tau: float = Field(1.0, ge=0)
    vacant: Literal["drop", "one"] = "drop"
    beta: float = Field(1.0, ge=0)
    temperature: float = Field(1.0, gt=0)
    teacher: Literal["received", "uniform"] = "received"
    distil: float = Field(0.1, ge=0)
    suppress: float = Field(0.005, ge=0)

    @property
    def needs_received(self) -> bool:
        """Whether batches go through the received model as well."""
        return self.kind == "vls" or (self.kind == "lmd" and self.teacher == "received")


class MissingClasses:
    """What one site does about the classes it does not hold, in one local round."""

    def __init__(self, options: LogitsOptions, local: LocalRound):
        self.options = options
        counts = local.counts
        self.counts, self.held = counts, counts > 0
        self.share = counts / counts.sum().clamp(min=1)
        self.received = local.received_model if options.needs_received else None
        self.factor, self.offset = self._factor(), self._offset()

    def seen(self, logits: Tensor) -> Tensor:
        """Return the logits (B, C) that the classification loss sees."""
        if self.factor is not None:
            return logits * self.factor.to(logits)
        return logits if self.offset is None else logits + self.offset.to(logits)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Return the weighted terms that are added to the objective."""
        options, logits = self.options, batch.exact_logits
        if options.kind not in ("lmd", "vls"):
            return {}
        taught = logits if self.received is None else self.received(batch)[1].to(logits)
        vacant = ~self.held.expand_as(logits)
        own = F.one_hot(batch.labels, logits.shape[1]).bool()
        if options.kind == "lmd":
            teacher = torch.zeros_like(logits) if self.received is None else taught / options.temperature
            pulled = divergence(teacher, vacant, logits / options.temperature, ~own)
            return {"distillation": options.beta * options.temperature**2 * pulled}
        pulled = divergence(taught, vacant, logits, vacant)
        return {
            "distillation": options.distil * pulled,
            "suppression": options.suppress * self._level_of_others(logits, own),
        }

    def _level_of_others(self, logits: Tensor, own: Tensor) -> Tensor:
        """Return the sum over the held classes of p_c log(mean over the batch of e^{z_c} where the label is not c)."""
        others = logits.masked_fill(own, torch.finfo(logits.dtype).min)
        level = others.logsumexp(0) - math.log(len(logits))
        # A class that is the label of the whole batch has no level.
        return (self.share.to(logits) * level.masked_fill(own.all(0), 0)).sum()

    def _factor(self) -> Tensor | None:
        options = self.options
        if options.kind == "restricted":
            if options.restriction == "paper":
                return torch.where(self.held, 1.0, options.alpha)
            return options.alpha + (1 - options.alpha) * self.share / self.share.max()
        return len(self.share) * self.share if options.kind == "scaled" else None

    def _offset(self) -> Tensor | None:
        """Return what is added to the logits; with tau 0 nothing, for a class without samples too."""
        kind, tau = self.options.kind, self.options.tau
        if kind not in ("adjusted", "calibrated", "vls"):
            return None
        if tau == 0:
            return torch.zeros_like(self.share)
        if kind == "calibrated":
            offset = -(self.counts.to(self.share) ** -0.25)
        else:
            keeps = kind == "adjusted" and self.options.vacant == "one"
            offset = (self.counts.clamp(min=1) / self.counts.sum().clamp(min=1) if keeps else self.share).log()
        # A finite number stands for minus infinity: a focal loss multiplies it by 0.
        return (tau * offset).clamp(min=torch.finfo(self.share.dtype).min / 2)


def divergence(teacher: Tensor, teacher_classes: Tensor, student: Tensor, student_classes: Tensor) -> Tensor:
    """Return the mean KL divergence of two softmax distributions, each over some of the classes.

    Args:
        teacher, student: (B, C) logits.
        teacher_classes, student_classes: (B, C) bool; those of the teacher are among those of the student.

    Returns:
        A scalar; 0, but connected to the graph, where the teacher has no classes.
    """
    log_teacher = _log_softmax(teacher, teacher_classes)
    terms = log_teacher.exp() * (log_teacher - _log_softmax(student, student_classes))
    return terms.masked_fill(~teacher_classes, 0).sum() / len(student)


def _log_softmax(logits: Tensor, classes: Tensor) -> Tensor:
    """Return the log-softmax over some of the classes; what stands at the others means nothing, but is finite."""
    return F.log_softmax(logits.masked_fill(~classes, torch.finfo(logits.dtype).min), dim=1)
