"""How many examples of a rule are tried: few in each run of the tests, many when it is proven."""

import pytest

FEW_AND_MANY = [30, pytest.param(300, marks=pytest.mark.prove)]
