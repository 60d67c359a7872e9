"""One policy per file; `table.py` names them."""
