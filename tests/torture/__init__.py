"""Random search: scenarios that a seed decides, drawn by `make torture` and run again with fixed seeds by `make prove`."""
