"""The HTTP server. One thread owns the model, handlers only queue: read worker.py, then http.py."""
