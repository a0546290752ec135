"""Manifold reshaping: the losses of FedMR as an addition to the objective of any method.

Three variants. ``paper`` is the printed method: intra-class and inter-class loss. ``anchored`` has the inter-class
loss in its margin-free form, on a sphere: it pulls every feature to the prototype of its class, with prototypes that
move slowly. Under partially class-disjoint data the hinge of the paper is idle as soon as a site tells its own classes
apart; the anchor keeps the features of a class where the classifiers of the other sites expect them, and the fixed
radius keeps their norm from running away. ``replayed`` adds what makes use of the classes that only others hold: the
site's classifier sees their global prototypes as labelled features. docs/results.md says what each was seen to do.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedmr_med.losses import anchor_loss, inter_class_loss, intra_class_loss, replay_loss
from fedmr_med.prototypes import Prototypes
from fedmr_med.schema import Strict, invalid

Variant = Literal["paper", "anchored", "replayed"]

_ANCHORED = {"mu1": 0.0, "mu2": 0.5, "inertia": 0.8, "own_prototypes": True}
_PRESETS: dict[str, dict[str, Any]] = {"paper": {}, "anchored": _ANCHORED, "replayed": _ANCHORED | {"replay": 1.0}}


class ReshapingOptions(Strict):
    """Options of manifold reshaping.

    The defaults are those of ``variant: paper``; ``anchored`` has mu1 0, mu2 0.5, inertia 0.8 and own prototypes;
    ``replayed`` has all that, and replay 1.

    Attributes:
        variant: ``paper``; ``anchored``, with the anchor loss in place of the inter-class loss; or ``replayed``, with
            the replay loss besides.
        mu1, mu2: weights of the intra-class loss, and of the inter-class or anchor loss.
        replay: weight of the replay loss, see :func:`fedmr_med.losses.replay_loss`.
        inertia: share of the old global prototype that stays when a class is shared again.
        own_prototypes: whether a site uses its own prototype of a class it holds where no global one came, so that
            opting out costs nothing. It never leaves the site.
        radius: of the anchors' sphere; None is sqrt(d) / 2 for features of length d.
        max_age: a global prototype that nobody has shared for more rounds takes no part; None keeps them for ever.
        terms: ``both``, or one of the two losses alone (the paper's ablation).
        scale: scale of the intra-class loss, see :func:`fedmr_med.losses.intra_class_loss`.
        negatives: the "other" classes of the inter-class loss: ``all`` with a prototype, or only the
            ``local`` ones, as the paper's formula is printed.
        lite: samples of a mini-batch that the inter-class loss uses (FedMR Lite); None uses all.
        margin: False gives the margin-free variant.
        prototypes: ``mean`` of the shared features, or ``one_hot`` (a negative result of the paper).
    """

    variant: Variant = "paper"
    mu1: float = Field(0.01, ge=0)
    mu2: float = Field(0.0001, ge=0)
    replay: float = Field(0.0, ge=0)
    inertia: float = Field(0.0, ge=0, lt=1)
    own_prototypes: bool = False
    radius: float | None = Field(None, gt=0)
    max_age: int | None = Field(None, ge=0)
    terms: Literal["both", "intra", "inter"] = "both"
    scale: Literal["released", "paper"] = "released"
    negatives: Literal["all", "local"] = "all"
    lite: int | None = Field(None, ge=0)
    margin: bool = True
    prototypes: Literal["mean", "one_hot"] = "mean"

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        variant = content.get("variant", cls.model_fields["variant"].default)
        if variant not in _PRESETS or variant == "paper":
            return content
        if not content.keys().isdisjoint({"margin", "negatives"}):
            raise invalid(
                "margin and negatives belong to variant: paper; the anchor loss has neither",
                code="config.conflict",
                key="variant",
            )
        return _PRESETS[variant] | content

    @property
    def needs_prototypes(self) -> bool:
        """Whether the sites are asked for class sums: an inter-class loss that counts needs them, unless one-hot."""
        counts = self.terms != "intra" and self.mu2 > 0 and self.lite != 0
        return (counts and self.prototypes == "mean") or self.replay > 0

    @property
    def anchored(self) -> bool:
        """Whether the inter-class loss is the anchor loss."""
        return self.variant != "paper"

    @property
    def mixes_images(self) -> str | None:
        """Which option keeps the losses from being of one image at a time, in words; None where none does."""
        if self.terms != "inter" and self.mu1 > 0:
            return "the intra-class loss (mu1 above 0), of which a single image has none,"
        if self.replay > 0:
            return "the replay loss, which tells the classes of the site (variant: anchored has none),"
        if self.lite is not None:
            return "lite, which draws among the images of a batch,"
        return "negatives: local, which tells the classes of the site," if self.negatives == "local" else None

    @property
    def keeps_own_prototypes(self) -> bool:
        """Whether a site keeps its own prototypes from round to round."""
        return self.own_prototypes and self.needs_prototypes


class ManifoldReshaping:
    """The losses of FedMR for one local round.

    Args:
        options: of the losses.
        prototypes: the global ones.
        own: see :class:`fedmr_med.methods.local.LocalRound`.
        held: (C,) bool, the classes that the site holds, on the device of the training.
        classify: from features (n, d) to logits (n, C); only the replay loss calls it.
        generator: draws the samples of ``lite``.
    """

    def __init__(
        self,
        options: ReshapingOptions,
        prototypes: Prototypes,
        *,
        held: Tensor,
        classify: Callable[[Tensor], Tensor],
        generator: torch.Generator,
        own: Prototypes | None = None,
    ):
        self.options, self.classify, self.generator = options, classify, generator
        young = prototypes.younger_than(options.max_age)
        missing = young.available.to(held.device) & ~held
        self.replayed = missing.nonzero()[:, 0]
        self.points = prototypes.means.to(held.device)[self.replayed]
        self.negatives = held if options.negatives == "local" else None
        if options.prototypes == "one_hot":
            classes, size = prototypes.means.shape
            self.means = torch.eye(classes, size, device=held.device)
            self.available = torch.ones(classes, dtype=torch.bool, device=held.device)
        else:
            known = young if own is None else young.or_else(own)
            self.means, self.available = known.means.to(held.device), known.available.to(held.device)

    def terms(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return mu1 * intra, mu2 * inter or anchor, and replay * replay, of features (B, d) and labels (B,)."""
        options, terms = self.options, {}
        # The intra-class loss takes a third of the time of a small network's step; anchored FedMR leaves it out.
        if options.terms in ("both", "intra") and not (options.anchored and options.mu1 == 0):
            intra = intra_class_loss(features, labels, scale=options.scale)
            terms["intra"] = options.mu1 * intra
        if options.terms in ("both", "inter") and options.anchored:
            anchor = anchor_loss(
                features,
                labels,
                self.means,
                available=self.available,
                radius=options.radius,
                lite=options.lite,
                generator=self.generator,
            )
            terms["anchor"] = options.mu2 * anchor
        elif options.terms in ("both", "inter"):
            inter = inter_class_loss(
                features,
                labels,
                self.means,
                available=self.available,
                negatives=self.negatives,
                lite=options.lite,
                generator=self.generator,
                margin=options.margin,
            )
            terms["inter"] = options.mu2 * inter
        if options.replay > 0:
            # The classifier alone learns from it: prototypes are numbers, behind which there is no network.
            points = self.points.to(torch.promote_types(features.dtype, torch.float32))
            terms["replay"] = options.replay * replay_loss(self.classify(points), self.replayed)
        return terms
