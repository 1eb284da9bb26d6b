"""Variances of few repeats, moderated towards the variance that all samples share (Smyth 2004, "Linear models and
empirical Bayes methods for assessing differential expression")."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

LEAST_SPREAD = 0.001  # relative: two figures agree to the last digit by chance
LEAST_SHARED = 3  # samples with repeats that show how far samples share a variance


@dataclass(frozen=True)
class Variances:
    """The number of values of each sample, its variance, and the degrees of freedom of that variance. `most_freedom`
    are those of all repeats together."""

    counts: np.ndarray
    variances: np.ndarray
    freedoms: np.ndarray
    most_freedom: float

    def of_differences(self) -> tuple[np.ndarray, np.ndarray]:
        """The variance of the difference of each two sample means, and its degrees of freedom (Welch).

        Moderated variances have the shared variance in common, so their freedoms do not add up: a difference has at
        most the freedom of all repeats together.
        """
        scaled = self.variances / self.counts
        totals = scaled[:, None] + scaled
        with np.errstate(invalid="ignore"):  # an unknown variance is infinite
            freedoms = totals**2 / (scaled[:, None] ** 2 / self.freedoms[:, None] + scaled**2 / self.freedoms)
        return totals, np.minimum(freedoms, max(self.most_freedom, 1.0))


def moderated_variances(samples: Sequence[np.ndarray]) -> Variances:
    """The variances of samples, moderated as far as the samples share a variance.

    A sample of one value has the shared variance. It is infinite while fewer than LEAST_SHARED samples have repeats.
    The shared variance counts at most as much as all repeats.
    """
    counts = np.array([len(sample) for sample in samples])
    freedoms = counts - 1.0
    own = np.array([sample.var(ddof=1) if len(sample) > 1 else math.inf for sample in samples])
    own = np.maximum(own, LEAST_SPREAD**2)
    repeated = freedoms > 0
    most = float(freedoms.sum())
    if repeated.sum() < LEAST_SHARED:
        return Variances(counts, own, np.maximum(freedoms, 1), most)
    shared, shared_freedom = _shared_variance(own[repeated], freedoms[repeated])
    total = freedoms + shared_freedom
    weighted = np.where(repeated, own, 0.0) * freedoms + shared_freedom * shared
    return Variances(counts, weighted / total, np.minimum(total, most), most)


def _shared_variance(variances: np.ndarray, freedoms: np.ndarray) -> tuple[float, float]:
    """The variance that samples share, and its degrees of freedom (Smyth 2004, section 6.2)."""
    logs = np.log(variances) - special.digamma(freedoms / 2) + np.log(freedoms / 2)
    excess = float(logs.var(ddof=1) - special.polygamma(1, freedoms / 2).mean())
    most = float(freedoms.sum())
    freedom = most
    if excess > 0:  # the variances differ by more than chance
        freedom = min(2 * _inverse_trigamma(excess), most)
    shared = math.exp(float(logs.mean()) + float(special.digamma(freedom / 2)) - math.log(freedom / 2))
    return shared, freedom


def _inverse_trigamma(value: float) -> float:
    """The argument at which trigamma has this value, by Newton's method (Smyth 2004, appendix)."""
    argument = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, argument))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, argument))
        argument += step
        if -step / argument < 1e-8:
            break
    return argument
