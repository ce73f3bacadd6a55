"""Metrics of right and wrong answers, for many clients at once, from how often each class was asked and answered.

With two classes the second is the positive one; with more every class present among a client's labels is set against
the rest, and the plain mean over these classes is taken (macro). A client with labels of one class alone is undefined
(NaN): half of what these metrics compare is missing. An answer of no class (a NaN score) is wrong in every class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Counts:
    """For K clients and L classes, (K, L): labels of each class, answers of each class, and the right ones of them."""

    asked: Tensor
    answered: Tensor
    right: Tensor

    @staticmethod
    def of(owner: Tensor, labels: Tensor, answers: Tensor, clients: int, classes: int) -> Counts:
        """From each sample's client, label and answer; an answer of -1 is no class."""

        def count(kept: Tensor, classed: Tensor) -> Tensor:
            cells = torch.bincount(owner[kept] * classes + classed[kept], minlength=clients * classes)
            return cells.double().reshape(clients, classes)

        every, given, good = torch.ones_like(labels, dtype=torch.bool), answers >= 0, answers == labels
        return Counts(count(every, labels), count(given, answers), count(good, labels))

    @property
    def total(self) -> Tensor:
        """The samples of each client, (K, 1)."""
        return self.asked.sum(1, keepdim=True)

    def mean(self, by_class: Tensor) -> Tensor:
        """The positive class of two; the mean over the classes a client has of more."""
        return by_class[:, 1] if by_class.shape[1] == 2 else self.macro(by_class)

    def macro(self, by_class: Tensor) -> Tensor:
        """The mean over the classes that a client has labels of."""
        present = self.asked > 0
        return torch.where(present, by_class, 0.0).sum(1) / present.sum(1)


def _recall(counts: Counts) -> Tensor:
    return counts.right / counts.asked


def sensitivity(counts: Counts) -> Tensor:
    """The share of a class's samples that are found, TP / (TP + FN); also called recall."""
    return counts.mean(_recall(counts))


def specificity(counts: Counts) -> Tensor:
    """The share of the other samples that are not taken for the class, TN / (TN + FP)."""
    others = counts.total - counts.asked
    return counts.mean((others - (counts.answered - counts.right)) / others)


def precision(counts: Counts) -> Tensor:
    """The share of a class's answers that are right, TP / (TP + FP); 0 where it is never the answer."""
    return counts.mean(counts.right / counts.answered.clamp_min(1))


def f1(counts: Counts) -> Tensor:
    """The harmonic mean of precision and sensitivity, 2 TP / (2 TP + FP + FN)."""
    return counts.mean(2 * counts.right / (counts.asked + counts.answered))


def balanced_accuracy(counts: Counts) -> Tensor:
    """The mean of the sensitivities of all classes a client has, with two classes as well."""
    return counts.macro(_recall(counts))


def kappa(counts: Counts) -> Tensor:
    """Cohen's kappa, (p - e) / (1 - e): accuracy p beyond what answers of the same frequencies get by chance, e."""
    accuracy = counts.right.sum(1, keepdim=True) / counts.total
    chance = (counts.asked * counts.answered).sum(1, keepdim=True) / counts.total.square()
    return ((accuracy - chance) / (1 - chance)).squeeze(1)


FORMULAS: dict[str, Callable[[Counts], Tensor]] = {
    "f1": f1,
    "precision": precision,
    "sensitivity": sensitivity,
    "specificity": specificity,
    "balanced-accuracy": balanced_accuracy,
    "kappa": kappa,
}
"""The metrics by name; in all of them more is better."""


def measured(name: str, counts: Counts) -> Tensor:
    """A metric of every client, (K,); NaN where labels of one class alone leave it undefined."""
    return FORMULAS[name](counts).masked_fill((counts.asked > 0).sum(1) < 2, torch.nan)
