"""Every method's update rule once more, in plain numpy and float64, sharing no code with ``fedmr_med.methods``.

The model is one hidden layer: z = tanh(W1 x + b1), logits = W2 z + b2. Gradients of the cross-entropy and of the
terms on the weights are written by hand, as is that of the intra-class loss, which is too steep for differences;
those of the other terms on the features z are central differences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Weights = dict[str, np.ndarray]
W1, B1, W2, B2 = "hidden.weight", "hidden.bias", "classifier.weight", "classifier.bias"
Data = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Settings:
    """What all clients have in common."""

    classes: int
    lr: float
    momentum: float
    weight_decay: float
    rounds: int


def features(w: Weights, x: np.ndarray) -> np.ndarray:
    return np.tanh(x @ w[W1].T + w[B1])


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def numeric_gradient(f: Callable[[np.ndarray], float], z: np.ndarray, step: float = 1e-6) -> np.ndarray:
    gradient = np.zeros_like(z)
    for index in np.ndindex(*z.shape):
        up, down = z.copy(), z.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (f(up) - f(down)) / (2 * step)
    return gradient


def add(a: Weights, factor: float, b: Weights) -> Weights:
    return {name: a[name] + factor * b[name] for name in a}


def zeros(w: Weights) -> Weights:
    return {name: np.zeros_like(value) for name, value in w.items()}


class FedAvg:
    """A federation of clients that hold ``sizes`` samples; one call of :meth:`round` is one round."""

    def __init__(self, w: Weights, sizes: Sequence[int], settings: Settings, **options: float | str | None):
        self.w = {name: value.astype(np.float64) for name, value in w.items()}
        self.sizes, self.settings, self.options = sizes, settings, options
        self.t = 0
        self.prototypes: dict[int, np.ndarray] = {}

    # What methods change.
    def on_features(self, k: int, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Return the gradient of the method's terms on the features z."""
        return np.zeros_like(z)

    def classification_weight(self, y: np.ndarray) -> float:
        return 1.0

    def on_weights(self, k: int, w: Weights) -> Weights:
        """Return the gradient of the method's terms on the weights."""
        return zeros(w)

    def clipped(self, gradient: Weights) -> Weights:
        return gradient

    def merge(self, local: dict[int, Weights], steps: dict[int, int]) -> Weights:
        total = sum(self.sizes[k] for k in local)
        return {name: sum(self.sizes[k] / total * w[name] for k, w in local.items()) for name in self.w}

    # What is the same for all.
    def gradient(self, k: int, w: Weights, x: np.ndarray, y: np.ndarray) -> Weights:
        z = features(w, x)
        d_logits = softmax(z @ w[W2].T + w[B2])
        d_logits[np.arange(len(y)), y] -= 1
        d_logits *= self.classification_weight(y) / len(y)
        d_z = d_logits @ w[W2] + self.on_features(k, x, y, z)
        d_hidden = d_z * (1 - z**2)
        loss = {W1: d_hidden.T @ x, B1: d_hidden.sum(0), W2: d_logits.T @ z, B2: d_logits.sum(0)}
        return self.clipped(add(loss, 1, self.on_weights(k, w)))

    def train(self, k: int, batches: Data) -> Weights:
        s, w, velocity = self.settings, self.w, None
        for x, y in batches:
            g = add(self.gradient(k, w, x, y), s.weight_decay, w)
            velocity = g if velocity is None else {name: s.momentum * velocity[name] + g[name] for name in g}
            w = add(w, -s.lr, velocity)
        return w

    def round(self, batches: dict[int, Data], everything: dict[int, tuple[np.ndarray, np.ndarray]]) -> None:
        """Train the clients named by ``batches`` on them; ``everything`` is each one's whole training data."""
        local = {k: self.train(k, data) for k, data in batches.items()}
        merged = self.merge(local, {k: len(data) for k, data in batches.items()})
        for c in range(self.settings.classes):
            rows = [self.averaged(features(local[k], everything[k][0][everything[k][1] == c])) for k in local]
            if sum(len(r) for r in rows):
                self.prototypes[c] = np.concatenate(rows).mean(0)
        self.w = merged
        self.t += 1

    def averaged(self, z: np.ndarray) -> np.ndarray:
        """Return features as they go into the prototypes."""
        return z


class FedProx(FedAvg):
    def on_weights(self, k: int, w: Weights) -> Weights:
        return {name: self.options["mu"] * (w[name] - self.w[name]) for name in w}


class FedNova(FedAvg):
    def merge(self, local: dict[int, Weights], steps: dict[int, int]) -> Weights:
        total = sum(self.sizes[k] for k in local)
        p = {k: self.sizes[k] / total for k in local}
        a = {k: momentum_steps(steps[k], self.settings.momentum) for k in local}
        tau = sum(p[k] * a[k] for k in local)
        return {n: w - tau * sum(p[k] * (w - local[k][n]) / a[k] for k in local) for n, w in self.w.items()}


def momentum_steps(tau: int, rho: float) -> float:
    """Add up, over the steps, how far one unit of gradient moves the weights until the end of the round."""
    return sum(sum(rho**i for i in range(tau - t)) for t in range(tau))


class Moon(FedAvg):
    def __init__(self, *args: object, **options: float):
        super().__init__(*args, **options)
        self.previous: dict[int, Weights] = {}

    def on_features(self, k: int, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        if k not in self.previous:
            return np.zeros_like(z)
        near, far = features(self.w, x), features(self.previous[k], x)

        def loss(z: np.ndarray) -> float:
            cosine = [(z * o).sum(1) / np.linalg.norm(z, axis=1) / np.linalg.norm(o, axis=1) for o in (near, far)]
            a, b = np.exp(cosine[0] / 0.5), np.exp(cosine[1] / 0.5)
            return float(self.options["mu"] * -np.log(a / (a + b)).mean())

        return numeric_gradient(loss, z)

    def train(self, k: int, batches: Data) -> Weights:
        w = super().train(k, batches)
        self.previous[k] = w
        return w


class FedProc(FedAvg):
    def averaged(self, z: np.ndarray) -> np.ndarray:
        as_they_are = self.options.get("average") == "as_they_are"
        return z if as_they_are else z / np.linalg.norm(z, axis=1, keepdims=True)

    @property
    def rest(self) -> float:
        return 1 - self.t / self.settings.rounds

    def classification_weight(self, y: np.ndarray) -> float:
        known = np.mean([c in self.prototypes for c in y])
        return 1 - self.rest * known if self.options.get("schedule") == "original" else 1.0

    def on_features(self, k: int, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        weight = self.rest if self.options.get("schedule") == "original" else self.options["mu"]

        def loss(z: np.ndarray) -> float:
            total = 0.0
            for row, c in zip(z, y, strict=True):
                if c not in self.prototypes:
                    continue
                cosine = {j: row @ g / np.linalg.norm(row) / np.linalg.norm(g) for j, g in self.prototypes.items()}
                total += np.log(sum(np.exp(v) for v in cosine.values())) - cosine[c]
            return float(weight * total / len(y))

        return numeric_gradient(loss, z)


class FedMR(FedAvg):
    """Intra-class loss at the released scale, inter-class loss over all classes with a prototype."""

    def on_features(self, k: int, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        inter = numeric_gradient(lambda features: self.inter(features, y), z)
        return self.options["mu1"] * self.intra_gradient(z, y) + self.options["mu2"] * inter

    def intra_gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        gradient, samples, d = np.zeros_like(z), 0, z.shape[1]
        for c in np.unique(y):
            n = int((y == c).sum())
            if n < 2:
                continue
            scale = np.sqrt(z[y == c].var(0, ddof=1) + 1e-8)
            s = (z[y == c] - z[y == c].mean(0)) / scale
            d_s = 4 * s @ (s.T @ s * (1 - np.eye(d))) / (d * (d - 1))
            gradient[y == c] = (d_s - d_s.mean(0) - s * (d_s * s).sum(0) / (n - 1)) / scale
            samples += n
        return gradient / max(samples, 1)

    def inter(self, z: np.ndarray, y: np.ndarray) -> float:
        pairs = []
        for i in np.unique(y):
            for j in self.prototypes:
                if i in self.prototypes and j != i:
                    near = np.linalg.norm(z[y == i] - self.prototypes[i], axis=1)
                    far = np.linalg.norm(z[y == i] - self.prototypes[j], axis=1)
                    pairs.append(np.maximum(near - far, 0).mean())
        return float(np.mean(pairs)) if pairs else 0.0


class FedDyn(FedAvg):
    """``known`` starts empty, so omega is 1 for everybody in the first round, unless ``mean_samples`` is given."""

    def __init__(self, *args: object, **options: float | None):
        super().__init__(*args, **options)
        self.h = [zeros(self.w) for _ in self.sizes]
        self.known: dict[int, int] = {}

    def omega(self, k: int) -> float:
        if self.options.get("mean_samples"):
            return self.sizes[k] / self.options["mean_samples"]
        return self.sizes[k] / np.mean(list(self.known.values())) if self.known else 1.0

    def on_weights(self, k: int, w: Weights) -> Weights:
        a = self.options["alpha"] / self.omega(k)
        return {name: a * (w[name] - self.w[name]) + a * self.h[k][name] for name in w}

    def clipped(self, gradient: Weights) -> Weights:
        if self.options.get("clip") is None:
            return gradient
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        return {name: g * min(1.0, self.options["clip"] / (norm + 1e-6)) for name, g in gradient.items()}

    def merge(self, local: dict[int, Weights], steps: dict[int, int]) -> Weights:
        for k, w in local.items():
            self.h[k] = add(self.h[k], 1, add(w, -1, self.w))
            self.known[k] = self.sizes[k]
        mean = {name: np.mean([w[name] for w in local.values()], axis=0) for name in self.w}
        return {name: mean[name] + np.mean([h[name] for h in self.h], axis=0) for name in self.w}


class FedDC(FedDyn):
    """c is what its definition says at any moment: the mean over all sites of omega_k c_k with today's omega."""

    def __init__(self, *args: object, **options: float | None):
        super().__init__(*args, **options)
        self.c_local = [zeros(self.w) for _ in self.sizes]

    @property
    def c(self) -> Weights:
        weighted = [{n: self.omega(k) * c[n] for n in c} for k, c in enumerate(self.c_local)]
        return {n: np.mean([c[n] for c in weighted], axis=0) for n in self.w}

    def on_weights(self, k: int, w: Weights) -> Weights:
        omega, c = self.omega(k), self.c
        a = self.options["alpha"] / omega
        return {n: a * (w[n] + self.h[k][n] - self.w[n]) + c[n] / omega - self.c_local[k][n] for n in w}

    def merge(self, local: dict[int, Weights], steps: dict[int, int]) -> Weights:
        c = self.c
        for k, w in local.items():
            omega = self.omega(k)
            m = momentum_steps(steps[k], self.settings.momentum)
            moved = add(w, -1, self.w)
            self.c_local[k] = {n: self.c_local[k][n] - c[n] / omega - moved[n] / (m * self.settings.lr) for n in moved}
        return super().merge(local, steps)


class Scaffold(FedAvg):
    """Controls start at zero; the server's is the weighted mean change, scaled by the share of sites present."""

    def __init__(self, *args: object, **options: float | None):
        super().__init__(*args, **options)
        self.c = zeros(self.w)
        self.c_local = [zeros(self.w) for _ in self.sizes]

    def on_weights(self, k: int, w: Weights) -> Weights:
        return add(self.c, -1, self.c_local[k])

    def merge(self, local: dict[int, Weights], steps: dict[int, int]) -> Weights:
        before, total = self.c, sum(self.sizes[k] for k in local)
        for k, w in local.items():
            # The mean gradient of the round: what the sum of all steps, each with its reach, moved the weights by.
            reach = self.settings.lr * momentum_steps(steps[k], self.settings.momentum)
            gradient = {n: (self.w[n] - w[n]) / reach for n in w}
            new = add(gradient, 1, add(self.c_local[k], -1, before))
            share = self.sizes[k] / total * len(local) / len(self.sizes)
            self.c = add(self.c, share, add(new, -1, self.c_local[k]))
            self.c_local[k] = new
        return super().merge(local, steps)
