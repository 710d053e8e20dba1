"""Random search: scenarios that a seed decides, drawn anew by `make torture` and told again with fixed seeds by `make prove`."""
