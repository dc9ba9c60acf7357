"""Tasks: the predictions of a model, with their losses and metrics.

A `Task` has a label, losses and metrics; the section ``tasks`` of a config holds some. The first loss describes the
prediction.

=================================  ====================================================================================
`total_loss`                       the number to minimize, from a model's outputs and the columns of a batch
`predictions`, `predicted`         the predictions that users get, by column, and the predictions of one task
`meaning`                          their meaning in words
`TOWERS`, `vector_column`          the towers of a matching model, and the columns of their vectors
`named_metrics`, `Scores`          the metrics of all tasks, by name, and their states
`WINDOW`                           the prefix of the metrics of windows
`check_predictions`                refuses metrics that do not fit the predictions
`sample_weights`                   the weights of the examples of a batch; `count_examples`: without its padding
`by_candidate`                     several candidates of an example as rows of their own
`QualityCounts`                    counts for the charts of an evaluation, by task
=================================  ====================================================================================
"""

from sparrow.tasks.candidates import by_candidate, judged_rows
from sparrow.tasks.objective import total_loss
from sparrow.tasks.predictions import TOWERS, is_matching, meaning, predicted, predictions, vector_column
from sparrow.tasks.quality_counts import QualityCounts
from sparrow.tasks.scores import WINDOW, Scores, States, TaskMetric, check_predictions, named_metrics
from sparrow.tasks.task import POSITIONS, MetricUse, Task, count_examples, sample_weights
