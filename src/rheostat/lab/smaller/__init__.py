"""Smaller models made from larger ones: distilled or quantised, with what is lost and gained."""

from rheostat.lab.smaller.compare import Smaller, compare, with_model
from rheostat.lab.smaller.distil import DistilError, Student, distil
from rheostat.lab.smaller.quantize import quantize_file

__all__ = ["DistilError", "Smaller", "Student", "compare", "distil", "quantize_file", "with_model"]
