"""The HTTP server. One thread owns the model, handlers only queue: worker.py, then routes.py."""
