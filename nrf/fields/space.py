"""Spatial receptive fields: scale-normalised affine Gaussian directional derivatives.

    T(x) = sigma_phi^m1 sigma_perp^m2  d_phi^m1 d_perp^m2  g(x; s Sigma)                      (paper, eq. 3)
         = (-1)^(m1+m2) He_m1(u / sigma_phi) He_m2(w / sigma_perp)  g(u; sigma_phi) g(w; sigma_perp)

    u = x cos phi + y sin phi,   w = -x sin phi + y cos phi,   He_m the Hermite polynomials

`phi` is the first eigendirection of the covariance and sigma_phi^2, sigma_perp^2 are the eigenvalues of
`s Sigma`, with det Sigma = 1: the scale sqrt(s) is the geometric mean of the two deviations, the skew is
the ratio of the two eigenvalues. x is the column and y the row of the kernel, in pixels from its centre.

A kernel's entry is the integral of T over the pixel. Cutting T off at the kernel's border would leave
derivatives that answer to uniform light and smoothing that darkens, so both sums are put right.

Kernels are convolution kernels; torch's conv2d correlates, which changes the sign of odd orders.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import atan2, ceil, cos, pi, sin, sqrt

import numpy as np
from numpy.polynomial.hermite_e import hermeval
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike

from nrf.arrays import Floats
from nrf.errors import InputError

Order = tuple[int, int]


@dataclass(frozen=True)
class Field:
    """One receptive field.

    >>> kernel(Field(scale=1.5, order=(1, 0)), size=9).shape
    (9, 9)
    """

    scale: float  # pixels, geometric mean of the two standard deviations
    orientation: float = 0.0  # radians from the x axis towards the y axis
    skew: float = 1.0  # ratio of the eigenvalues, along / across the orientation
    order: Order = (0, 0)  # derivatives along and across the orientation

    def __post_init__(self) -> None:
        if self.scale <= 0 or self.skew <= 0:
            raise InputError(f"receptive field: scale {self.scale} and skew {self.skew} must be above 0")
        if min(self.order) < 0:
            raise InputError(f"receptive field: order {self.order} must not be below 0")

    @property
    def deviations(self) -> tuple[float, float]:
        """Standard deviations along and across the orientation, in pixels."""
        return self.scale * self.skew**0.25, self.scale * self.skew**-0.25

    @property
    def covariance(self) -> Floats:
        """The covariance matrix s Sigma, in square pixels."""
        rotation = np.array(
            [[cos(self.orientation), -sin(self.orientation)], [sin(self.orientation), cos(self.orientation)]]
        )
        return np.asarray(rotation @ np.diag(np.square(self.deviations)) @ rotation.T)


def from_covariance(covariance: ArrayLike, order: Order = (0, 0)) -> Field:
    """The field with this covariance matrix; its first direction is the longer one."""
    values, vectors = np.linalg.eigh(np.asarray(covariance, dtype=np.float64))
    if values[0] <= 0:
        raise InputError(f"receptive field: the covariance has eigenvalue {values[0]:.3g}, expected above 0")
    x, y = vectors[:, 1]
    return Field(float(np.prod(values)) ** 0.25, atan2(y, x), float(values[1] / values[0]), order)


def evaluate(field: Field, x: ArrayLike, y: ArrayLike) -> Floats:
    """The continuous T at points (x, y), in pixels from the centre."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    result: Floats = np.ones(np.broadcast_shapes(x.shape, y.shape))
    along = x * cos(field.orientation) + y * sin(field.orientation)
    across = -x * sin(field.orientation) + y * cos(field.orientation)
    for distance, deviation, order in zip((along, across), field.deviations, field.order, strict=True):
        z = distance / deviation
        hermite = hermeval(z, [0] * order + [(-1) ** order])
        result = result * hermite * np.exp(-(z**2) / 2) / (sqrt(2 * pi) * deviation)
    return result


def integrate(
    field: Field, size: int, centre: tuple[float, float] = (0.0, 0.0), pixel: float = 1.0
) -> Floats:
    """Integrals of T over the pixels of a (size, size) grid, T centred at `centre` (x, y).

    Gauss-Legendre in every pixel, with more nodes the narrower T is against the pixel, so that only
    rounding is left of the error (the tests hold it against the error function).
    """
    narrow = pixel / min(field.deviations)
    nodes, weights = leggauss(4 + ceil(6 * narrow) + max(field.order))
    cells = (np.arange(size) - (size - 1) / 2)[:, None]
    axis = (cells + nodes / 2).reshape(-1) * pixel
    values = evaluate(field, axis[None, :] - centre[0], axis[:, None] - centre[1])
    weights = weights * pixel / 2
    return np.asarray(np.einsum("iajb,a,b->ij", values.reshape(size, len(nodes), size, -1), weights, weights))


def kernel(field: Field, size: int = 9) -> Floats:
    """The discrete kernel (size, size): sums to 1 for order (0, 0) and to 0 for every derivative.

    What a derivative lacks to 0 is taken off in the shape of its own Gaussian, so that the kernel
    stays as local as it was.
    """
    smooth = integrate(Field(field.scale, field.orientation, field.skew), size)
    smooth = np.asarray(smooth / smooth.sum())
    if field.order == (0, 0):
        return smooth
    derivative = integrate(field, size)
    return np.asarray(derivative - derivative.sum() * smooth)


ORDERS: tuple[Order, ...] = ((0, 0), (1, 0), (0, 1), (1, 1))
SCALES = (0.8, 1.2, 1.6, 2.0)  # pixels; linear, and 9x9 holds the largest to 1.6 deviations along its axis
SKEWS = (1.0, 2.5, 4.0)


def fields(
    orientations: int = 4,
    scales: Iterable[float] = SCALES,
    skews: Iterable[float] = SKEWS,
    orders: Iterable[Order] = ORDERS,
) -> tuple[Field, ...]:
    """All combinations, orientations linear in [0, pi); the defaults are the paper's 144.

    A round Gaussian (skew 1) looks the same in every orientation, and its derivatives in other
    directions are sums of those at 0; it is therefore taken at one orientation only. That is how
    4 scales x (2 skews x 4 orientations + 1 round) x 4 orders make 144, not 192, and no two are equal.
    """
    angles = [pi * k / orientations for k in range(orientations)]
    ellipses = [(skew, angle) for skew in skews for angle in (angles if skew != 1 else angles[:1])]
    return tuple(
        Field(scale, angle, skew, order)
        for scale, (skew, angle), order in product(scales, ellipses, tuple(orders))
    )


def spatial_bank(chosen: Iterable[Field] | None = None, size: int = 9) -> Floats:
    """The kernels (N, size, size) of some fields, of the paper's 144 by default.

    >>> spatial_bank().shape
    (144, 9, 9)
    """
    return np.stack([kernel(field, size) for field in (fields() if chosen is None else chosen)])
