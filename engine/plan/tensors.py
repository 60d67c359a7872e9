"""Where the tensors of a model lie in its files: whole ones, and matrices within them.

Shapes are written row-major: a matrix that maps `cols` inputs to `rows` outputs is `(rows, cols)`,
a stack `(experts, rows, cols)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.gguf.formats import F32, Format


@dataclass(frozen=True, slots=True)
class TensorRef:
    """Where a tensor's bytes lie: `nbytes` bytes at `offset` of the file `path`."""

    name: str
    format: Format
    shape: tuple[int, ...]  # row-major, the contiguous axis last
    path: str
    offset: int  # bytes from the start of the file
    nbytes: int

    @property
    def rows(self) -> int:
        """Rows of a matrix, or of one expert of a stack."""
        return self.shape[-2] if len(self.shape) > 1 else 1

    @property
    def cols(self) -> int:
        return self.shape[-1]

    @property
    def extents(self) -> tuple[tuple[int, int], ...]:
        """(offset, bytes) of its parts in the file, in order."""
        return ((self.offset, self.nbytes),)


@dataclass(frozen=True, slots=True)
class RowsRef:
    """Some rows of the matrix `whole`, where a file keeps several matrices in one tensor."""

    whole: TensorRef
    spans: tuple[tuple[int, int], ...]  # (first row, rows), in the order of this matrix

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def path(self) -> str:
        return self.whole.path

    @property
    def format(self) -> Format:
        return self.whole.format

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.spans)

    @property
    def cols(self) -> int:
        return self.whole.cols

    @property
    def nbytes(self) -> int:
        return self.rows * (self.whole.nbytes // self.whole.rows)

    @property
    def extents(self) -> tuple[tuple[int, int], ...]:
        """(offset, bytes) of its parts in the file, in order."""
        row = self.whole.nbytes // self.whole.rows
        return tuple((self.whole.offset + first * row, rows * row) for first, rows in self.spans)


@dataclass(frozen=True, slots=True)
class TransposedRef:
    """`count` matrices that lie in `stored` one below the other, each turned: rows become columns.

    No format of blocks can be turned, so they are kept in F32, as the values that they stand for.
    """

    stored: RowsRef  # (count * cols, rows / count)
    count: int

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def path(self) -> str:
        return self.stored.path

    @property
    def format(self) -> Format:
        """In memory."""
        return F32

    @property
    def rows(self) -> int:
        return self.count * self.stored.cols

    @property
    def cols(self) -> int:
        return self.stored.rows // self.count

    @property
    def nbytes(self) -> int:
        """In memory."""
        return self.rows * F32.row_bytes(self.cols)


MatrixRef = TensorRef | RowsRef | TransposedRef
