"""What the bytes of a block mean, one file for each family of formats; see `dequant.py`."""
