"""What a file that is not a GGUF looks like, for the error message."""

from __future__ import annotations

_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive or PyTorch checkpoint"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"version https://git-lfs", "a Git LFS pointer: the real file was not downloaded"),
    (b"lmgg", "an old GGML model from before GGUF"),
    (b"fmgg", "an old GGML model from before GGUF"),
    (b"tjgg", "an old GGML model from before GGUF"),
    (b"algg", "an old GGML adapter from before GGUF"),
    (b"MZ", "a Windows program"),
    (b"\x7fELF", "a Linux program"),
    (b"%PDF", "a PDF document"),
)


def looks_like(head: bytes) -> str:
    """A guess at the kind of file from its first (at most 256) bytes; empty if there is none."""
    for beginning, kind in _BEGINNINGS:
        if head.startswith(beginning):
            return kind
    text = head.lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page: the download link gave a page instead of the file"
    # A safetensors file begins with the length of its JSON header in 8 bytes.
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors file"
    if text.startswith((b"{", b"[")):
        return "JSON text"
    if head and not head.strip(b"\0"):
        return "zeros: space that a download has reserved and not filled"
    return ""
