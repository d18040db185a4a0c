"""Nonlinear least squares by the Trust Region Reflective method, as one compiled program."""

from ._api import curve_fit as curve_fit
from ._api import least_squares as least_squares
from ._products import ProductsResult as ProductsResult
from ._products import least_squares_by_products as least_squares_by_products
from ._result import History as History
from ._result import Result as Result
