"""Reports: one HTML file that shows a run, or compares several. Everything is inside it; it needs no network.

`write_report` reads the files of run folders (listed in `recorded`) and draws them: `learning` (metrics, rates, speed,
memory), `curves` (ROC, precision, calibration), `page` (importance of features), `traffic` (rows that were looked up),
`facts` (config, versions). Charts are SVG made here (`chart`, `axis`); a small script adds hover values.
"""

from sparrow.reports.facts import Compared, compare, is_lower_better
from sparrow.reports.formatting import duration, size
from sparrow.reports.page import IMPORTANCE, inline, run_charts, unshared, write_report
from sparrow.reports.recorded import CONFIG, CURVES, ENVIRONMENT, METRICS, REPORT, TRAFFIC, RecordedRun, write_json
