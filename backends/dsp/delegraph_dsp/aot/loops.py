"""A kernel and the shapes of a tile -> its loops: the instructions of an iteration, and the number of iterations.

Each loop goes over vectors of 128 bytes (or the device's width). Integers are widened to words of 32 bits, multiplied,
rounded and packed again; sums of float16 run in words. `runtime/kernels` computes the results: these loops only give
their cost on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

from delegraph_dsp.isa import CODES, Instruction
from delegraph_dsp.program import BINARY_FUNCTIONS, FUNCTIONS, ITEM_NBYTES

__all__ = ["Tile", "loops_of"]

Body: TypeAlias = tuple[Instruction, ...]
Loops: TypeAlias = list[tuple[Body, int]]


@dataclass(frozen=True, slots=True)
class Tile:
    """The operands of a launch: their shapes and dtypes, its integers, the bytes of a vector."""

    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    integers: tuple[int, ...]
    vector_nbytes: int

    def vectors(self, operand: int = -1) -> int:
        """The number of vectors of an operand."""
        return self.vectors_of(prod(self.shapes[operand]), self.dtypes[operand])

    def vectors_of(self, count: int, dtype: str) -> int:
        """The number of vectors of `count` elements."""
        return -(-count * ITEM_NBYTES[dtype] // self.vector_nbytes)

    def rows(self) -> tuple[int, int]:
        """The number of rows of the first operand, and of vectors in a row."""
        shape = self.shapes[0]
        return prod(shape[:-1]), self.vectors_of(shape[-1], self.dtypes[0])


class Writer:
    """Writes a body, one instruction after the other; registers are numbered on."""

    def __init__(self) -> None:
        self.body: list[Instruction] = []
        self._registers = 0

    def new(self) -> int:
        """A new register."""
        self._registers += 1
        return self._registers - 1

    def load(self, stream: int) -> int:
        """Load the next vector of an operand."""
        target = self.new()
        self.body.append(Instruction(CODES["vload"], target, (), stream))
        return target

    def store(self, stream: int, source: int) -> None:
        """Store the next vector of an operand."""
        self.body.append(Instruction(CODES["vstore"], -1, (source,), stream))

    def op(self, name: str, *sources: int, into: int | None = None) -> int:
        """Add an instruction; its result, in a new register or in `into`."""
        target = self.new() if into is None else into
        self.body.append(Instruction(CODES[name], target, sources))
        return target

    def chain(self, names: str, value: int) -> int:
        """Instructions that each read the result of the one before."""
        for name in names.split():
            value = self.op(name, value)
        return value

    def widen(self, value: int, dtype: str) -> list[int]:
        """A vector of codes as words: four vectors of int8, two of int16."""
        halves = [value] if dtype == "int16" else [self.op("vunpack", value) for _ in range(2)]
        return [self.op("vunpack", half) for half in halves for _ in range(2)]

    def pack(self, words: Sequence[int]) -> int:
        """Words packed to one vector of codes."""
        left = list(words)
        while len(left) > 1:
            left = [self.op("vpack", a, b) for a, b in zip(left[::2], left[1::2], strict=True)]
        return left[0]

    def rescale(self, word: int) -> int:
        """A word times a multiplier, shifted and rounded."""
        return self.chain("vmpyw vround", word)

    def requantize(self, words: Sequence[int]) -> int:
        """Words as codes of another grid: rescaled, moved by the zero point, limited, packed."""
        return self.pack([self.chain("vmpyw vround vaddw vmaxw vmaxw", word) for word in words])


def _body(write: Callable[[Writer], None]) -> Body:
    writer = Writer()
    write(writer)
    return tuple(writer.body)


# ---- elements -----------------------------------------------------------------------------------------------------

EXP: Final = "vmpyf vround vaddf vlut vmpyf vaddf vmpyf vaddf vshift"
"""Range reduction, a polynomial with coefficients from a table, the exponent put back."""
NEWTON: Final = "vlut vmpyf vaddf vmpyf vmpyf vaddf vmpyf"
"""A first approximation from a table, two steps of Newton's method."""
EXP_WORDS: Final = EXP.replace("vmpyf", "vmpysf").replace("vaddf", "vaddsf")
_SIMPLE: Final = frozenset({"abs", "neg", "relu", "floor", "ceil"})
_ROOTS: Final = frozenset({"sqrt", "rsqrt", "reciprocal"})
_BINARY: Final = {"add": "vaddf", "sub": "vaddf", "mul": "vmpyf", "maximum": "vmaxf", "minimum": "vmaxf"}


def _each(write: Callable[[Writer], None]) -> Callable[[Tile], Loops]:
    """A body for each vector of the result."""
    return lambda tile: [(_body(write), tile.vectors())]


def _convert(tile: Tile) -> Loops:
    def write(w: Writer) -> None:
        w.store(1, w.op("vpack", *(w.op("vconvert", w.load(0)) for _ in range(2))))

    return [(_body(write), tile.vectors_of(prod(tile.shapes[-1]), "float16"))]


def _clamp(tile: Tile) -> Loops:
    name = "vmaxf vmaxf" if tile.dtypes[0] == "float16" else "vmaxb vmaxb"
    return [(_body(lambda w: w.store(1, w.chain(name, w.load(0)))), tile.vectors())]


def _unary(tile: Tile) -> Loops:
    function = FUNCTIONS[tile.integers[0]]
    names = "vmaxf" if function in _SIMPLE else NEWTON if function in _ROOTS else f"{EXP} vaddf {NEWTON}"
    return [(_body(lambda w: w.store(1, w.chain(names, w.load(0)))), tile.vectors())]


def _binary(tile: Tile) -> Loops:
    function = BINARY_FUNCTIONS[tile.integers[0]]

    def write(w: Writer) -> None:
        a, b = w.load(0), w.load(1)
        if function == "div":
            w.store(2, w.op("vmpyf", a, w.chain(NEWTON, b)))
        else:
            result = w.op(_BINARY.get(function, "vmaxf"), a, b)
            w.store(2, result if function in _BINARY else w.op("vpack", result))

    return [(_body(write), tile.vectors_of(prod(tile.shapes[-1]), "float16"))]


def _table(tile: Tile) -> Loops:
    def write8(w: Writer) -> None:
        x, result = w.load(0), 0
        for part in range(8):  # a lookup has 32 entries
            result = w.op("vlut", x) if part == 0 else w.op("vlut", x, result)
        w.store(2, result)

    def write16(w: Writer) -> None:
        x = w.load(0)
        index = w.op("vshift", x)
        base, next_one = w.op("vgather", index), w.op("vgather", index)
        slope = w.op("vmpyh", w.op("vaddw", base, next_one), x)
        w.store(2, w.op("vround", w.op("vaddw", base, slope)))

    return [(_body(write8 if tile.dtypes[0] == "int8" else write16), tile.vectors())]


def _pointwise_int(inputs: int, rescaled: bool, combine: str) -> Callable[[Tile], Loops]:
    def loops(tile: Tile) -> Loops:
        # vectors of words that a vector of codes gives
        words_in = [ITEM_NBYTES["int32"] // ITEM_NBYTES[dtype] for dtype in tile.dtypes]
        most = max(words_in)  # int8 + int16: a vector of int8 and two of int16 are as many elements

        def words_of(w: Writer, stream: int) -> list[int]:
            vectors = [w.load(stream) for _ in range(most // words_in[stream])]
            words = [w.op("vaddw", word) for vector in vectors for word in w.widen(vector, tile.dtypes[stream])]
            return [w.rescale(word) for word in words] if rescaled else words

        def write(w: Writer) -> None:
            operands = [words_of(w, stream) for stream in range(inputs)]
            words = [w.op(combine, *pair) if inputs > 1 else pair[0] for pair in zip(*operands, strict=True)]
            for first in range(0, most, words_in[-1]):
                w.store(inputs, w.requantize(words[first : first + words_in[-1]]))

        return [(_body(write), -(-tile.vectors() * words_in[-1] // most))]

    return loops


def _quantize(tile: Tile) -> Loops:
    def write(w: Writer) -> None:
        words = 4 if tile.dtypes[1] == "int8" else 2
        w.store(1, w.pack([w.chain("vmpysf vconvert vaddw vmaxw", w.load(0)) for _ in range(words)]))

    return [(_body(write), tile.vectors())]


def _dequantize(tile: Tile) -> Loops:
    def write(w: Writer) -> None:
        for word in w.widen(w.load(0), tile.dtypes[0]):
            w.store(1, w.chain("vaddw vconvert vmpysf", word))

    return [(_body(write), tile.vectors(0))]


# ---- products -----------------------------------------------------------------------------------------------------

ROWS: Final = 4
"""Rows of the left operand that share a vector of the right one."""


def _matmul(tile: Tile) -> Loops:
    """A step of k: a vector of the right operand, times an element of four rows, into eight sums of words."""

    def step(w: Writer) -> None:
        sums = [w.new() for _ in range(2 * ROWS)]
        b = w.load(1)
        a = w.load(0)
        for row in range(ROWS):
            product = w.op("vmpyf", w.op("vsplat", a), b)
            # a product of halves fills two vectors of words
            for half in range(2):
                w.op("vaddsf", sums[2 * row + half], product, into=sums[2 * row + half])

    def finish(w: Writer) -> None:
        w.store(3, w.op("vpack", *(w.op("vconvert", w.op("vaddsf", w.load(2))) for _ in range(2))))

    rows, columns = _blocks(tile, 2)
    return [(_body(step), -(-rows // ROWS) * columns * tile.shapes[0][-1]), (_body(finish), rows * columns)]


def _matmul_int(tile: Tile) -> Loops:
    """A step of four k for int8, two for int16: a vector of the right operand, times these of four rows."""
    byte = tile.dtypes[0] == tile.dtypes[1] == "int8"

    def step(w: Writer) -> None:
        sums = [w.new() for _ in range(ROWS)]
        b = w.load(1)
        a = w.load(0)
        for row in range(ROWS):
            w.op("vmpyb" if byte else "vmpyh", w.op("vsplat", a), b, sums[row], into=sums[row])

    def finish(w: Writer) -> None:
        w.store(5, w.chain("vmpyw vround vaddw vmaxw vmaxw vpack", w.op("vaddw", w.load(2))))

    rows, columns = _blocks(tile, 4)
    steps = -(-tile.shapes[0][-1] // (4 if byte else 2))
    return [(_body(step), -(-rows // ROWS) * columns * steps), (_body(finish), rows * columns)]


def _blocks(tile: Tile, nbytes: int) -> tuple[int, int]:
    """Rows of the output, of all batches, and vectors of its columns with elements of `nbytes` bytes."""
    out = tile.shapes[-1]
    return prod(out[:-1]), -(-out[-1] * nbytes // tile.vector_nbytes)


# ---- rows ---------------------------------------------------------------------------------------------------------


def _across(name: str) -> Body:
    """One lane from all: five halvings of 32 words."""

    def write(w: Writer) -> None:
        value = w.new()
        for _ in range(5):
            value = w.op(name, value, w.op("vshuffle", value))

    return _body(write)


def _accumulate(words: int, before: str, add: str) -> Body:
    """Each vector of a row, as `words` vectors, through `before`, added to a sum."""

    def write(w: Writer) -> None:
        sums = [w.new() for _ in range(words)]
        x = w.load(0)
        for part in sums:
            w.op(add, part, w.chain(before, w.op("vunpack", x)), into=part)

    return _body(write)


def _softmax(tile: Tile) -> Loops:
    rows, vectors = tile.rows()

    def divide(w: Writer) -> None:
        x = w.load(0)
        halves = [w.op("vmpysf", w.chain(EXP_WORDS, w.op("vunpack", x))) for _ in range(2)]
        w.store(1, w.op("vpack", *(w.op("vconvert", half) for half in halves)))

    return [
        (_accumulate(1, "", "vmaxf"), rows * vectors),
        (_across("vmaxf"), rows),
        (_accumulate(2, f"vaddsf {EXP_WORDS}", "vaddsf"), rows * vectors),
        (_across("vaddsf"), rows),
        (_body(divide), rows * vectors),
    ]


def _softmax_int(tile: Tile) -> Loops:
    rows, vectors = tile.rows()
    words, tables = (4, 8) if tile.dtypes[0] == "int8" else (2, 16)

    def look_up(w: Writer, word: int) -> int:
        result = w.op("vlut", word)
        # a lookup has 32 entries: 256 take eight of them, the two tables of int16 sixteen
        for _ in range(tables - 1):
            result = w.op("vlut", word, result)
        return result

    def add(w: Writer) -> None:
        sums = [w.new() for _ in range(words)]
        x = w.load(0)
        for part in sums:
            w.op("vaddw", part, look_up(w, w.op("vunpack", x)), into=part)

    def divide(w: Writer) -> None:
        x = w.load(0)
        w.store(3, w.requantize([w.rescale(look_up(w, w.op("vunpack", x))) for _ in range(words)]))

    return [
        (_accumulate(1, "", "vmaxw"), rows * vectors),
        (_across("vmaxw"), rows),
        (_body(add), rows * vectors),
        (_across("vaddw"), rows),
        (_body(divide), rows * vectors),
    ]


def _norm(tile: Tile) -> Loops:
    rows, vectors = tile.rows()

    def apply(w: Writer) -> None:
        x, weight, bias = w.load(0), w.load(1), w.load(2)
        halves = []
        for _ in range(2):
            scaled = w.op("vmpysf", w.op("vaddsf", w.op("vunpack", x)), w.op("vunpack", weight))
            halves.append(w.op("vconvert", w.op("vaddsf", scaled, w.op("vunpack", bias))))
        w.store(3, w.op("vpack", *halves))

    mean = [(_accumulate(2, "", "vaddsf"), rows * vectors), (_across("vaddsf"), rows)] if tile.integers[0] else []
    square = (_accumulate(2, "vaddsf vmpysf", "vaddsf"), rows * vectors)
    return [*mean, square, (_across("vaddsf"), rows), (_body(apply), rows * vectors)]


def _norm_int(tile: Tile) -> Loops:
    rows, vectors = tile.rows()
    words = 4 if tile.dtypes[0] == "int8" else 2

    def apply(w: Writer) -> None:
        x = w.load(0)
        done = []
        for _ in range(words):
            scaled = w.rescale(w.op("vaddw", w.op("vunpack", x)))
            done.append(w.op("vaddw", w.op("vround", w.op("vmpyw", scaled, w.load(1))), w.load(2)))
        w.store(3, w.requantize(done))

    return [
        (_accumulate(words, "", "vaddw"), rows * vectors),
        (_accumulate(words, "vmpyw", "vaddw"), rows * vectors),
        (_across("vaddw"), 2 * rows),
        (_body(apply), rows * vectors),
    ]


def _reduce(add: str, words8: int) -> Callable[[Tile], Loops]:
    def loops(tile: Tile) -> Loops:
        rows, vectors = tile.rows()
        words = words8 if tile.dtypes[0] == "int8" else 2
        return [(_accumulate(words, "", add), rows * vectors), (_across(add), rows)]

    return loops


# ---- indices ------------------------------------------------------------------------------------------------------


def _gather(tile: Tile) -> Loops:
    index, width = tile.shapes[1][0], tile.shapes[0][1]
    return [(_body(lambda w: w.store(2, w.load(0))), index * tile.vectors_of(width, tile.dtypes[0]))]


def _resize_linear(tile: Tile) -> Loops:
    """Rows first, then columns."""
    integer = tile.dtypes[0] != "float16"
    multiply, add = ("vmpyw", "vaddw") if integer else ("vmpysf", "vaddsf")
    words = 4 if tile.dtypes[0] == "int8" else 2

    def between(w: Writer) -> None:
        done = []
        for _ in range(words):
            corners = [w.op("vgather", w.load(1)) for _ in range(4)]
            upper, lower = (w.op(multiply, w.op(add, *pair), pair[0]) for pair in (corners[:2], corners[2:]))
            done.append(w.op(multiply, w.op(add, upper, lower), upper))
        out = len(tile.shapes) - 1
        w.store(out, w.requantize(done) if integer else w.op("vpack", *(w.op("vconvert", d) for d in done)))

    return [(_body(between), tile.vectors())]


_LOOPS: Final[dict[str, Callable[[Tile], Loops]]] = {
    "copy": _each(lambda w: w.store(1, w.load(0))),
    "convert": _convert,
    "fill": _each(lambda w: w.store(0, 0)),
    "unary": _unary,
    "binary": _binary,
    "clamp": _clamp,
    "where": _each(lambda w: w.store(3, w.op("vmux", w.load(0), w.load(1), w.load(2)))),
    "table": _table,
    "add_int": _pointwise_int(2, True, "vaddw"),
    "mul_int": _pointwise_int(2, False, "vmpyw"),
    "rescale": _pointwise_int(1, False, "vaddw"),
    "quantize": _quantize,
    "dequantize": _dequantize,
    "matmul": _matmul,
    "matmul_int": _matmul_int,
    "softmax": _softmax,
    "softmax_int": _softmax_int,
    "norm": _norm,
    "norm_int": _norm_int,
    "reduce": _reduce("vaddsf", 2),
    "reduce_int": _reduce("vaddw", 4),
    "resize_nearest": _each(lambda w: w.store(3, w.op("vgather", w.load(2)))),
    "resize_linear": _resize_linear,
    "resize_linear_int": _resize_linear,
    "gather": _gather,
}


def loops_of(tile: Tile) -> Loops:
    """The loops of a launch on `tile`, and the iterations of each."""
    return _LOOPS[tile.kernel](tile)
