"""Tables of few bits, for serving: each row has codes of 8 or 4 bits, and its own scale and offset."""

from sparrow.kernels.quantized.rows import (
    BITS,
    QuantizedTable,
    dequantize,
    described,
    fill_rows,
    quantize,
    record_bytes,
)
