"""Commands start without pandas, and pandas still works where it is needed."""

import subprocess
import sys
import textwrap


def test_arrow_imports_pandas_only_where_it_is_needed():
    code = """
        import sys
        from sparrow.cli.quick_start import leave_pandas_out

        leave_pandas_out()
        import numpy as np
        import pyarrow as pa

        assert pa.array(np.arange(3)).to_numpy().tolist() == [0, 1, 2]
        assert "pandas" not in sys.modules
        import pandas as pd

        table = pa.Table.from_pandas(pd.DataFrame({"a": [1, 2], "b": ["x", None]}), preserve_index=False)
        assert table.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
        assert pa.array(pd.Series([1.0, float("nan")])).null_count == 1
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
