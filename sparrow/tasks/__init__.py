"""Tasks: the predictions of a model, with their losses and metrics.

A `Task` has a label, losses and metrics; the first loss describes the prediction. From the outputs of a model and the
columns of a batch, `total_loss` is the number to minimize, `predictions` are those of all tasks by column, `Scores` the
states of all metrics, and `QualityCounts` the data of the charts.
"""

from sparrow.tasks.candidates import by_candidate, judged_rows
from sparrow.tasks.objective import total_loss
from sparrow.tasks.predictions import TOWERS, is_matching, meaning, predicted, predictions, vector_column
from sparrow.tasks.quality_counts import QualityCounts
from sparrow.tasks.scores import WINDOW, Scores, States, TaskMetric, check_predictions, named_metrics
from sparrow.tasks.task import POSITIONS, MetricUse, Task, count_examples, sample_weights
