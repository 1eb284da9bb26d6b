"""The differences between the means of each two samples, with their intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from trainkit.analysis.variances import moderated_variances

LEAST_ODDS = 9.0  # of a lead, against a lead by luck


@dataclass(frozen=True)
class MeanDifferences:
    """Lower and upper bounds of the differences of the sample means, row less column; infinite for unknown variances.

    `likely_lows` is above 0 where a difference has LEAST_ODDS: "above 0 by the tolerance" explains it so many times as
    well as "below 0 by the tolerance" (Wald 1945, the sequential probability ratio test).
    """

    lows: np.ndarray
    highs: np.ndarray
    likely_lows: np.ndarray


def differences(samples: Sequence[np.ndarray], error: float, tolerance: float) -> MeanDifferences:
    """The differences of samples. `error` is the chance of a bound to be wrong."""
    means = np.array([sample.mean() for sample in samples])
    variances, freedoms = moderated_variances(samples).of_differences()
    widths = np.full(variances.shape, math.inf)
    likely_widths = np.full(variances.shape, math.inf)
    is_known = np.isfinite(variances)
    variance, freedom = variances[is_known], freedoms[is_known]
    widths[is_known] = special.stdtrit(freedom, 1 - error) * np.sqrt(variance)
    likely_widths[is_known] = variance * math.log(LEAST_ODDS) / (2 * tolerance)
    np.fill_diagonal(widths, 0.0)
    np.fill_diagonal(likely_widths, 0.0)
    gaps = means[:, None] - means
    return MeanDifferences(gaps - widths, gaps + widths, gaps - likely_widths)
