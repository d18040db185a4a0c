"""Nonlinear least squares by the Trust Region Reflective method, as one compiled program."""

from examples.trf._api import curve_fit as curve_fit
from examples.trf._api import least_squares as least_squares
from examples.trf._products import ProductsResult as ProductsResult
from examples.trf._products import least_squares_by_products as least_squares_by_products
from examples.trf._result import History as History
from examples.trf._result import Result as Result
